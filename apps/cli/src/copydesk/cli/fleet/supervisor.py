"""Keep the processes of a fleet running, and stop them in order.

Decisions are `policy`'s; this module starts, waits and signals. One task a child; nothing else touches it.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from copydesk.cli.fleet import events
from copydesk.cli.fleet.child import Child, bound, rotate, tail
from copydesk.cli.fleet.plan import ChildSpec
from copydesk.cli.fleet.policy import Backoff, Ended, GiveUp, decide, stop_phases
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
    """A child over all of its runs."""

    spec: ChildSpec
    log: Path
    child: Child | None = None
    failures: int = 0
    restarts: int = 0
    ever_up: bool = False
    up_since: float | None = None
    ended_at: float = 0.0
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
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def start(self) -> None:
        """Start every child; its log begins anew."""
        for member in self.members.values():
            rotate(member.log)
            member.task = asyncio.create_task(self._keep(member), name=member.spec.name)
            member.task.add_done_callback(self._task_ended)
        self._log_keeper = asyncio.create_task(self._bound_logs(), name="logs")
        self._log_keeper.add_done_callback(self._task_ended)

    async def ready(self) -> None:
        """Wait until every child has been in service once; FleetFailedError if one cannot be."""
        everyone = asyncio.create_task(self._all_up())
        try:
            await asyncio.wait({everyone, self._failure}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            everyone.cancel()
        self._raise_failure()

    async def _all_up(self) -> None:
        for member in self.members.values():
            await member.first_up.wait()

    async def failed(self) -> None:
        """Wait until a child cannot run any more, then raise FleetFailedError."""
        await asyncio.wait({self._failure})
        self._raise_failure()

    def waiting_for(self) -> tuple[str, ...]:
        """Name the children that are not in service."""
        return tuple(name for name, member in self.members.items() if member.up_since is None)

    async def stop(self) -> None:
        """Stop the children phase by phase; who does not end in time is killed."""
        self._stopping.set()
        for phase in stop_phases([member.spec for member in self.members.values()]):
            await self._stop_phase([self.members[name] for name in phase.names], phase.grace)
        if self._log_keeper is not None:
            await asyncio.wait({self._log_keeper})

    def kill(self) -> None:
        """End every child now."""
        self._stopping.set()
        for member in self.members.values():
            if member.child is not None:
                member.child.kill()

    async def _stop_phase(self, members: list[Member], grace: float) -> None:
        for member in members:
            if member.child is not None:
                member.child.terminate()
        tasks = {member.task: member for member in members if member.task is not None}
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=grace)
        for task in late:
            member = tasks[task]
            self._report(events.Killed(time=time.time(), name=member.spec.name, grace_s=grace))
            if member.child is not None:
                member.child.kill()
        await asyncio.wait(tasks)

    async def _bound_logs(self) -> None:
        while not self._stopping.is_set():
            for member in self.members.values():
                bound(member.log, self._log_bytes)
            await self._pause(self._log_check_s)

    async def _keep(self, member: Member) -> None:
        while not self._stopping.is_set():
            try:
                child = Child.spawn(member.spec, member.log, self._environ)
            except OSError as error:
                self._fail(member, GiveUp(2, f"cannot be started: {error}"))
                return
            code, healthy = await self._run(member, child)
            if self._stopping.is_set():
                return
            ended = Ended(code, member.failures, healthy, member.ever_up)
            verdict = decide(ended, member.spec.fatal_exit, self._backoff, self._random())
            if isinstance(verdict, GiveUp):
                self._fail(member, verdict)
                return
            member.failures = verdict.failures
            self._report_exit(member, child, code, verdict.delay)
            await self._pause(verdict.delay)
            member.restarts += 1

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
        member.up_since = asyncio.get_running_loop().time()
        name, pid = member.spec.name, child.pid
        if member.ever_up:
            after = round(member.up_since - member.ended_at, 3)
            self._report(events.Restarted(time=time.time(), name=name, pid=pid, after_s=after))
        else:
            after = round(member.up_since - child.started, 3)
            self._report(events.ChildUp(time=time.time(), name=name, pid=pid, after_s=after))
        member.ever_up = True
        member.first_up.set()

    async def _pause(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return

    def _report_exit(self, member: Member, child: Child, code: int, delay: float) -> None:
        self._report(
            events.ChildExited(
                time=time.time(),
                name=member.spec.name,
                pid=child.pid,
                code=code,
                how=describe_exit(code),
                uptime_s=round(member.ended_at - child.started, 3),
                restart_in_s=round(delay, 3),
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
