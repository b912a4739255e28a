"""Keep the processes of a fleet running, let some go and others come, and stop all of them in order.

Decisions are `policy`'s and `scaling`'s; this module starts, waits and signals. One task a child starts it anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from copydesk.cli.fleet import events
from copydesk.cli.fleet.child import Child, bound, rotate, tail
from copydesk.cli.fleet.plan import ChildSpec
from copydesk.cli.fleet.policy import Backoff, Ended, GiveUp, Restart, decide, is_vital, stop_phases
from copydesk.common.errors import CopydeskError
from copydesk.common.process import describe_exit

POLL_S = 0.1
TAIL_LINES = 15
LOG_BYTES = 16 << 20
"""A log is kept to twice this: enough for weeks of a healthy fleet, or some minutes of a flood."""
LOG_CHECK_S = 5.0


class Probe(Protocol):
    """Tells whether a process does its work."""

    async def is_up(self, spec: ChildSpec, pid: int) -> bool:
        """Say whether the process is in service; never raises because it is not."""
        ...


class FleetFailedError(CopydeskError):
    """A child cannot run: which, why, and the exit code for the command."""

    def __init__(self, name: str, reason: str, exit_code: int) -> None:
        self.name = name
        self.reason = reason
        self.exit_code = exit_code
        super().__init__(f"{name} {reason}")


@dataclass(slots=True)
class Member:
    """A child over all of its runs; `up_after` is how many seconds its first took to be in service.

    `leaving` is set once it is not to be started any more; `draining` says that it was told, at `told_at`, to end
    what it has, and is then forgotten.
    """

    spec: ChildSpec
    log: Path
    child: Child | None = None
    failures: int = 0
    restarts: int = 0
    ever_up: bool = False
    up_since: float | None = None
    up_after: float | None = None
    ended_at: float = 0.0
    last_code: int | None = None
    draining: bool = False
    told_at: float = 0.0
    leaving: asyncio.Event = field(default_factory=asyncio.Event)
    first_up: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None


class Supervisor:
    """Starts every child, restarts those that die, stops all of them."""

    def __init__(
        self,
        specs: Sequence[ChildSpec],
        *,
        logs: Path,
        probe: Probe,
        report: Callable[[events.Event], None],
        random: Callable[[], float],
        on_change: Callable[[], None] = lambda: None,
        environ: Mapping[str, str] | None = None,
        backoff: Backoff | None = None,
        log_bytes: int = LOG_BYTES,
        log_check_s: float = LOG_CHECK_S,
    ) -> None:
        self.members = {spec.name: Member(spec, logs / f"{spec.name}.log") for spec in specs}
        self._logs = logs
        self._probe = probe
        self._report = report
        self._random = random
        self._on_change = on_change
        self._environ = os.environ if environ is None else environ
        self._backoff = backoff or Backoff()
        self._log_bytes = log_bytes
        self._log_check_s = log_check_s
        self._log_keeper: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self._drains: set[asyncio.Task[None]] = set()
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def start(self) -> None:
        """Start every child; its log begins anew."""
        for member in self.members.values():
            self._begin(member)
        self._log_keeper = asyncio.create_task(self._bound_logs(), name="logs")
        self._log_keeper.add_done_callback(self._task_ended)

    def add(self, spec: ChildSpec) -> None:
        """Start one child more, unless the fleet stops; its name must be nobody's."""
        if self._stopping.is_set():
            return
        member = self.members[spec.name] = Member(spec, self._logs / f"{spec.name}.log")
        self._begin(member)

    def drain(self, name: str) -> None:
        """Have a child end what it has, and forget it then; who does not end in time is killed."""
        member = self.members.get(name)
        if member is None or member.draining or self._stopping.is_set():
            return
        member.draining, member.told_at = True, asyncio.get_running_loop().time()
        member.last_code = None
        member.leaving.set()
        pid = member.child.pid if member.child else None
        self._report(events.Draining(time=time.time(), name=name, pid=pid))
        if member.child is not None:
            member.child.terminate()
            task = asyncio.create_task(self._see_off(member), name=f"{name} drains")
            self._drains.add(task)
            task.add_done_callback(self._drains.discard)
            task.add_done_callback(self._task_ended)
        self._on_change()

    def watch(self, task: asyncio.Task[None]) -> None:
        """Fail the fleet should this task end with an error."""
        task.add_done_callback(self._task_ended)

    def _begin(self, member: Member) -> None:
        with contextlib.suppress(OSError):  # a log that cannot be opened is told when its process is to be started
            rotate(member.log)
        member.task = asyncio.create_task(self._keep(member), name=member.spec.name)
        member.task.add_done_callback(self._task_ended)

    async def _see_off(self, member: Member) -> None:
        assert member.task is not None
        _, late = await asyncio.wait({member.task}, timeout=member.spec.grace)
        if late and not self._stopping.is_set():
            self._kill_late(member, member.spec.grace)

    async def ready(self) -> None:
        """Wait until every child that there is now has been in service once; FleetFailedError if one cannot be."""
        everyone = asyncio.create_task(self._all_up())
        try:
            await asyncio.wait({everyone, self._failure}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            everyone.cancel()
        self._raise_failure()

    async def _all_up(self) -> None:
        for member in tuple(self.members.values()):
            await member.first_up.wait()

    async def failed(self) -> None:
        """Wait until a child cannot run any more, then raise FleetFailedError."""
        await asyncio.wait({self._failure})
        self._raise_failure()

    def waiting_for(self) -> tuple[str, ...]:
        """Name the children that are not in service."""
        return tuple(
            name for name, member in self.members.items() if member.up_since is None and not member.draining
        )

    async def stop(self) -> None:
        """Stop the children phase by phase; who does not end in time is killed."""
        self._start_nothing()
        members = dict(self.members)
        for phase in stop_phases([member.spec for member in members.values()]):
            await self._stop_phase([members[name] for name in phase.names], phase.grace)
        if self._log_keeper is not None:
            await asyncio.wait({self._log_keeper})

    def kill(self) -> None:
        """End every child now."""
        self._start_nothing()
        for member in self.members.values():
            if member.child is not None:
                member.child.kill()

    def _start_nothing(self) -> None:
        self._stopping.set()
        for member in self.members.values():
            member.leaving.set()

    async def _stop_phase(self, members: list[Member], grace: float) -> None:
        for member in members:
            # Who drains has been asked: a second SIGTERM would have it drop what it still answers.
            if member.child is not None and not member.draining:
                member.child.terminate()
        tasks = {member.task: member for member in members if member.task is not None}
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=grace)
        for task in late:
            self._kill_late(tasks[task], grace)
        await asyncio.wait(tasks)

    def _kill_late(self, member: Member, grace: float) -> None:
        self._report(events.Killed(time=time.time(), name=member.spec.name, grace_s=grace))
        if member.child is not None:
            member.child.kill()

    async def _bound_logs(self) -> None:
        while not self._stopping.is_set():
            for member in self.members.values():
                bound(member.log, self._log_bytes)
            await _pause(self._stopping, self._log_check_s)

    async def _keep(self, member: Member) -> None:
        while not member.leaving.is_set():
            delay = await self._live(member)
            if delay is None:
                break
            await _pause(member.leaving, delay)
            member.restarts += 1
        if member.draining and not self._stopping.is_set():
            self._forget(member)

    async def _live(self, member: Member) -> float | None:
        """See one run through; return in how many seconds the next one is due, None if there shall be none."""
        try:
            child = Child.spawn(member.spec, member.log, self._environ)
        except OSError as error:
            return self._cannot_start(member, error)
        code, healthy = await self._run(member, child)
        member.last_code = code
        if member.leaving.is_set():
            return None
        ended = Ended(code, member.failures, healthy, member.ever_up)
        verdict = decide(ended, member.spec.fatal_exit, self._backoff, self._random(), member.spec.vital)
        if isinstance(verdict, GiveUp):
            self._fail(member, verdict)
            return None
        member.failures = verdict.failures
        self._report_exit(member, child, code, verdict)
        return verdict.delay

    def _cannot_start(self, member: Member, error: OSError) -> float | None:
        if is_vital(member.spec.vital, ever_up=member.ever_up):
            self._fail(member, GiveUp(2, f"cannot be started: {error}"))
            return None
        member.failures += 1
        delay = self._backoff.delay(member.failures, self._random())
        name, retry = member.spec.name, round(delay, 3)
        self._report(events.NotStarted(time=time.time(), name=name, reason=str(error), retry_in_s=retry))
        return delay

    def _forget(self, member: Member) -> None:
        self.members.pop(member.spec.name)
        after = round(asyncio.get_running_loop().time() - member.told_at, 3)
        how = "was not running" if member.last_code is None else describe_exit(member.last_code)
        self._report(events.Drained(time=time.time(), name=member.spec.name, how=how, after_s=after))
        self._on_change()

    async def _run(self, member: Member, child: Child) -> tuple[int, float]:
        """See one run through to its end: exit code, and how many seconds it was in service."""
        clock = asyncio.get_running_loop().time
        member.child = child
        self._on_change()
        watch = asyncio.create_task(self._watch_up(member, child))
        try:
            code = await child.wait()
        finally:
            watch.cancel()
        member.child = None
        member.ended_at = clock()
        healthy = 0.0 if member.up_since is None else member.ended_at - member.up_since
        member.up_since = None
        return code, healthy

    async def _watch_up(self, member: Member, child: Child) -> None:
        while not await self._probe.is_up(member.spec, child.pid):  # noqa: ASYNC110 - nothing tells, one must ask
            await asyncio.sleep(POLL_S)
        if member.draining:
            return
        member.up_since = asyncio.get_running_loop().time()
        name, pid = member.spec.name, child.pid
        if member.ever_up:
            after = round(member.up_since - member.ended_at, 3)
            self._report(events.Restarted(time=time.time(), name=name, pid=pid, after_s=after))
        else:
            after = member.up_after = round(member.up_since - child.started, 3)
            self._report(events.ChildUp(time=time.time(), name=name, pid=pid, after_s=after))
        member.ever_up = True
        member.first_up.set()
        self._on_change()

    def _report_exit(self, member: Member, child: Child, code: int, verdict: Restart) -> None:
        self._report(
            events.ChildExited(
                time=time.time(),
                name=member.spec.name,
                pid=child.pid,
                code=code,
                how=describe_exit(code),
                uptime_s=round(member.ended_at - child.started, 3),
                restart_in_s=round(verdict.delay, 3),
                log=str(member.log),
            )
        )
        self._on_change()

    def _fail(self, member: Member, verdict: GiveUp) -> None:
        self._report(
            events.Failed(
                time=time.time(),
                name=member.spec.name,
                reason=verdict.reason,
                log=str(member.log),
                log_tail=tail(member.log, TAIL_LINES),
                exit_code=verdict.exit_code,
            )
        )
        self._set_failure(FleetFailedError(member.spec.name, verdict.reason, verdict.exit_code))

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        """Fail the fleet for a defect of the supervisor itself: nobody looks after that child any more."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._set_failure(error)

    def _set_failure(self, error: BaseException) -> None:
        if not self._failure.done():
            self._failure.set_exception(error)
            self._failure.exception()  # marks it as seen: a fleet that is stopping anyway does not look again

    def _raise_failure(self) -> None:
        if self._failure.done():
            self._failure.result()


async def _pause(over: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(over.wait(), seconds)
    except TimeoutError:
        return
