"""A fleet from its start to its end: lock, ports, processes, signals, state file."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from copydesk.cli.fleet import events
from copydesk.cli.fleet.orders import Orders
from copydesk.cli.fleet.plan import FleetOptions, Role, Scaling, plan_autoscaler, plan_fleet, plan_pod
from copydesk.cli.fleet.probe import GatewayProbe
from copydesk.cli.fleet.report import Report
from copydesk.cli.fleet.scaler import Scaler
from copydesk.cli.fleet.scaling import Limits
from copydesk.cli.fleet.state import FleetState, ProcessState, ScalingState, StateDirError, write_state
from copydesk.cli.fleet.supervisor import FleetFailedError, Member, Supervisor
from copydesk.common.bus import Bus

WAITING_NOTICE_S = 60.0
INTERRUPTED_EXIT = 130


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a session ended: the exit code, and the error of `work` if it raised one."""

    exit_code: int
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class _Fleet:
    """What a session works with; there is a `scaler` where an autoscaler decides the size."""

    options: FleetOptions
    report: Report
    supervisor: Supervisor
    interrupts: Interrupts
    scaler: Scaler | None


class Interrupts:
    """Signals that ask the fleet to stop: the first one in order, the second one at once."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.forced = False
        self.first = asyncio.Event()
        self._force: Callable[[], None] = lambda: None

    def install(self, force: Callable[[], None]) -> None:
        """Take SIGINT, SIGTERM and SIGHUP (a closed terminal) from now on."""
        self._force = force
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._take, number)

    def _take(self, number: signal.Signals) -> None:
        if self.first.is_set():
            self.forced = True
            self._force()
            return
        self.reason = number.name
        self.first.set()


async def run_fleet(
    options: FleetOptions,
    report: Report,
    work: Callable[[str], Awaitable[None]] | None = None,
    *,
    serve: bool = True,
) -> Outcome:
    """Start a fleet, do `work` with its URL once it is ready, serve until a signal comes, stop everything.

    Without `serve` the end of `work` is the end, and a signal before it an interruption. The caller holds the
    lock of the state directory.
    """
    async with _supervised(options, report) as fleet:
        outcome = await _until_the_end(fleet, work, serve)
        began = time.monotonic()
        await fleet.supervisor.stop()
    if fleet.interrupts.forced:
        outcome = Outcome(INTERRUPTED_EXIT)
    after = round(time.monotonic() - began, 3)
    report(events.Stopped(time=time.time(), after_s=after, exit_code=outcome.exit_code))
    return outcome


@asynccontextmanager
async def _supervised(options: FleetOptions, report: Report) -> AsyncIterator[_Fleet]:
    specs = plan_fleet(options)
    logs = options.state_dir / "logs"
    orders = _orders(options)
    redis_port = options.redis.port if options.redis else 0
    probe = GatewayProbe(options.url, options.nats_port, lambda: orders.taken, redis_port=redis_port)
    started = time.time()

    def note() -> None:
        _note(_state(options, supervisor, orders, started))

    def changed() -> None:
        note()
        if scaler is not None:
            scaler.wake()

    supervisor = Supervisor(
        specs,
        logs=logs,
        probe=probe,
        report=report,
        random=random.random,
        on_change=changed,
        environ={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    scaler = Scaler(supervisor, orders, partial(plan_pod, options), report, note) if options.scaling else None
    _prepare(options.state_dir, logs, _state(options, supervisor, orders, started))
    interrupts = Interrupts()
    interrupts.install(supervisor.kill)
    report(_starting(options, logs, tuple(spec.name for spec in specs)))
    supervisor.start()
    try:
        yield _Fleet(options, report, supervisor, interrupts, scaler)
    finally:
        supervisor.kill()
        await probe.close()


def _orders(options: FleetOptions) -> Orders:
    limits = options.scaling.limits if options.scaling else Limits(options.pods, options.pods)
    return Orders(options.model, limits, options.pods)


def _prepare(state_dir: Path, logs: Path, state: FleetState) -> None:
    """Begin the state file and the logs; raises `StateDirError`."""
    try:
        logs.mkdir(mode=0o700, exist_ok=True)
        write_state(state)
    except OSError as error:
        raise StateDirError(state_dir, error.strerror or str(error)) from error


def _note(state: FleetState) -> None:
    """Keep the state file up to date, as far as there is room: a full disk must not end a fleet that works."""
    with contextlib.suppress(OSError):
        write_state(state)


async def _until_the_end(fleet: _Fleet, work: Callable[[str], Awaitable[None]] | None, serve: bool) -> Outcome:
    """Run until a signal, a failure or the end of the work, and say that the fleet now stops."""
    life = asyncio.create_task(_life(fleet, work, serve))
    signalled = asyncio.create_task(fleet.interrupts.first.wait())
    await asyncio.wait({life, signalled}, return_when=asyncio.FIRST_COMPLETED)
    signalled.cancel()
    if not life.done():
        life.cancel()
        await asyncio.wait({life})
    outcome, reason = _judge(life, fleet.interrupts.reason)
    if life.cancelled() and not serve:
        outcome = Outcome(INTERRUPTED_EXIT)
    fleet.report(events.Stopping(time=time.time(), reason=reason))
    return outcome


def _judge(life: asyncio.Task[None], signal_name: str | None) -> tuple[Outcome, str]:
    error = None if life.cancelled() else life.exception()
    match error:
        case None:
            return Outcome(0), signal_name or "done"
        case FleetFailedError():
            return Outcome(error.exit_code, error), f"{error.name} cannot run"
        case Exception():
            return Outcome(1, error), str(error)
        case _:
            raise error


async def _life(fleet: _Fleet, work: Callable[[str], Awaitable[None]] | None, serve: bool) -> None:
    began = time.monotonic()
    async with AsyncExitStack() as stack:
        notice = asyncio.create_task(_notice_waiting(fleet))
        try:
            await fleet.supervisor.ready()
        finally:
            notice.cancel()
        if fleet.scaler is not None and fleet.options.scaling is not None:
            await stack.enter_async_context(_scaled(fleet, fleet.scaler, fleet.options.scaling))
        await _serve(fleet, work, serve, began)


async def _serve(fleet: _Fleet, work: Callable[[str], Awaitable[None]] | None, serve: bool, began: float) -> None:
    url = fleet.options.url
    fleet.report(events.Ready(time=time.time(), url=url, after_s=round(time.monotonic() - began, 3)))
    failed = asyncio.create_task(fleet.supervisor.failed())
    try:
        if work is not None:
            await _first(asyncio.ensure_future(work(url)), failed)
        if serve:
            await failed
    finally:
        failed.cancel()


@asynccontextmanager
async def _scaled(fleet: _Fleet, scaler: Scaler, scaling: Scaling) -> AsyncIterator[None]:
    """Have an autoscaler decide meanwhile how many pods there are; it first listens for some seconds."""
    options, supervisor = fleet.options, fleet.supervisor
    bus = await Bus.connect(options.nats_url, name="up", token=options.nats_token)
    hearing = asyncio.create_task(scaler.run(bus), name="scaler")
    supervisor.watch(hearing)
    try:
        supervisor.add(plan_autoscaler(options, scaling, _cold_start(supervisor)))
        yield
    finally:
        hearing.cancel()
        await asyncio.wait({hearing})
        await bus.close()


def _cold_start(supervisor: Supervisor) -> float:
    """How many seconds the slowest of the first pods took to be ready, as any further one may."""
    pods = (member for member in supervisor.members.values() if member.spec.role is Role.POD)
    return min(3600.0, max(member.up_after or 0.1 for member in pods))


async def _first(task: asyncio.Future[None], failed: asyncio.Task[None]) -> None:
    """Wait for the work, but not longer than there is a fleet to do it."""
    try:
        done, _ = await asyncio.wait({task, failed}, return_when=asyncio.FIRST_COMPLETED)
        for finished in done:
            finished.result()
    finally:
        task.cancel()


async def _notice_waiting(fleet: _Fleet) -> None:
    began = time.monotonic()
    while True:
        await asyncio.sleep(WAITING_NOTICE_S)
        fleet.report(
            events.Stuck(
                time=time.time(),
                after_s=round(time.monotonic() - began, 1),
                waiting_for=fleet.supervisor.waiting_for(),
                logs=str(fleet.options.state_dir / "logs"),
            )
        )


def _starting(options: FleetOptions, logs: Path, names: tuple[str, ...]) -> events.Starting:
    return events.Starting(
        time=time.time(),
        url=options.url,
        model=options.model,
        model_dir=str(options.model_dir),
        pods=options.pods,
        threads=options.threads,
        state_dir=str(options.state_dir),
        logs=str(logs),
        processes=names,
        autoscale=str(options.scaling.limits) if options.scaling else None,
        certificate=str(options.figures) if options.scaling and options.figures else None,
        candidate=str(options.candidate.source) if options.candidate else None,
        candidate_pods=options.candidate.pods if options.candidate else 0,
    )


def _state(options: FleetOptions, supervisor: Supervisor, orders: Orders, started: float) -> FleetState:
    members = sorted(supervisor.members.values(), key=_place)
    return FleetState(
        pid=os.getpid(),
        started=started,
        url=options.url,
        nats_url=options.nats_url,
        model=options.model,
        model_dir=str(options.model_dir),
        state_dir=str(options.state_dir),
        logs=str(options.state_dir / "logs"),
        pods=tuple(member.spec.name for member in members if member.spec.role is Role.POD),
        processes=tuple(map(_process, members)),
        scaling=_scaling(orders) if options.scaling else None,
    )


def _place(member: Member) -> tuple[int, int, str]:
    """Where a process stands in a list: by what it does, then by its name, pod-2 before pod-10."""
    name = member.spec.name
    return list(Role).index(member.spec.role), len(name), name


def _process(member: Member) -> ProcessState:
    child = member.child
    return ProcessState(
        name=member.spec.name,
        role=member.spec.role,
        pid=child.pid if child else None,
        started=child.started_at if child else None,
        restarts=member.restarts,
        draining=member.draining,
    )


def _scaling(orders: Orders) -> ScalingState:
    limits, target = orders.limits, orders.target
    return ScalingState(least=limits.least, most=limits.most, pods=target.replicas, reason=target.reason)
