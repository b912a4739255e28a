"""A fleet from its start to its end: lock, ports, processes, signals, state file."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from copydesk.cli.fleet import events
from copydesk.cli.fleet.plan import FleetOptions, plan_fleet
from copydesk.cli.fleet.probe import GatewayProbe
from copydesk.cli.fleet.report import Report
from copydesk.cli.fleet.state import FleetState, ProcessState, StateDirError, write_state
from copydesk.cli.fleet.supervisor import FleetFailedError, Member, Supervisor

WAITING_NOTICE_S = 60.0
INTERRUPTED_EXIT = 130


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a session ended: the exit code, and the error of `work` if it raised one."""

    exit_code: int
    error: Exception | None = None


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
    async with _supervised(options, report) as (supervisor, interrupts):
        outcome = await _until_the_end(options, report, supervisor, interrupts, work, serve)
        began = time.monotonic()
        await supervisor.stop()
    if interrupts.forced:
        outcome = Outcome(INTERRUPTED_EXIT)
    after = round(time.monotonic() - began, 3)
    report(events.Stopped(time=time.time(), after_s=after, exit_code=outcome.exit_code))
    return outcome


@asynccontextmanager
async def _supervised(options: FleetOptions, report: Report) -> AsyncIterator[tuple[Supervisor, Interrupts]]:
    specs = plan_fleet(options)
    logs = options.state_dir / "logs"
    probe = GatewayProbe(options.url, options.nats_port)
    started = time.time()
    supervisor = Supervisor(
        specs,
        logs=logs,
        probe=probe,
        report=report,
        random=random.random,
        on_change=lambda: _note(_state(options, supervisor, started)),
        environ={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    _prepare(options.state_dir, logs, _state(options, supervisor, started))
    interrupts = Interrupts()
    interrupts.install(supervisor.kill)
    report(_starting(options, logs, tuple(spec.name for spec in specs)))
    supervisor.start()
    try:
        yield supervisor, interrupts
    finally:
        supervisor.kill()
        await probe.close()


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


async def _until_the_end(
    options: FleetOptions,
    report: Report,
    supervisor: Supervisor,
    interrupts: Interrupts,
    work: Callable[[str], Awaitable[None]] | None,
    serve: bool,
) -> Outcome:
    """Run until a signal, a failure or the end of the work, and say that the fleet now stops."""
    life = asyncio.create_task(_life(options, report, supervisor, work, serve))
    signalled = asyncio.create_task(interrupts.first.wait())
    await asyncio.wait({life, signalled}, return_when=asyncio.FIRST_COMPLETED)
    signalled.cancel()
    if not life.done():
        life.cancel()
        await asyncio.wait({life})
    outcome, reason = _judge(life, interrupts.reason)
    if life.cancelled() and not serve:
        outcome = Outcome(INTERRUPTED_EXIT)
    report(events.Stopping(time=time.time(), reason=reason))
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


async def _life(
    options: FleetOptions,
    report: Report,
    supervisor: Supervisor,
    work: Callable[[str], Awaitable[None]] | None,
    serve: bool,
) -> None:
    began = time.monotonic()
    notice = asyncio.create_task(_notice_waiting(options, report, supervisor))
    try:
        await supervisor.ready()
    finally:
        notice.cancel()
    report(events.Ready(time=time.time(), url=options.url, after_s=round(time.monotonic() - began, 3)))
    failed = asyncio.create_task(supervisor.failed())
    try:
        if work is not None:
            await _first(asyncio.ensure_future(work(options.url)), failed)
        if serve:
            await failed
    finally:
        failed.cancel()


async def _first(task: asyncio.Future[None], failed: asyncio.Task[None]) -> None:
    """Wait for the work, but not longer than there is a fleet to do it."""
    try:
        done, _ = await asyncio.wait({task, failed}, return_when=asyncio.FIRST_COMPLETED)
        for finished in done:
            finished.result()
    finally:
        task.cancel()


async def _notice_waiting(options: FleetOptions, report: Report, supervisor: Supervisor) -> None:
    began = time.monotonic()
    while True:
        await asyncio.sleep(WAITING_NOTICE_S)
        report(
            events.Stuck(
                time=time.time(),
                after_s=round(time.monotonic() - began, 1),
                waiting_for=supervisor.waiting_for(),
                logs=str(options.state_dir / "logs"),
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
    )


def _state(options: FleetOptions, supervisor: Supervisor, started: float) -> FleetState:
    return FleetState(
        pid=os.getpid(),
        started=started,
        url=options.url,
        nats_url=options.nats_url,
        model=options.model,
        model_dir=str(options.model_dir),
        state_dir=str(options.state_dir),
        logs=str(options.state_dir / "logs"),
        pods=options.pod_names,
        processes=tuple(_process(member) for member in supervisor.members.values()),
    )


def _process(member: Member) -> ProcessState:
    child = member.child
    return ProcessState(
        name=member.spec.name,
        role=member.spec.role,
        pid=child.pid if child else None,
        started=child.started_at if child else None,
        restarts=member.restarts,
    )
