"""Generator processes: as many as it takes to keep a schedule, each with its share of the same plan."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Sequence
from types import TracebackType

from copydesk.common.errors import CopydeskError
from copydesk.loadtest.client import Target
from copydesk.loadtest.pulse import Stall, merged
from copydesk.loadtest.sample import Sample
from copydesk.loadtest.tally import Tally, Watch
from copydesk.loadtest.wire import Assignment, Outcomes, Stop, frame, read_told, receive

LEAD_S = 0.03
"""Between telling the processes of a plan and its start; longer by `LEAD_S_A_REQUEST` for each request in it."""
LEAD_S_A_REQUEST = 2e-6
END_S = 5.0


class GeneratorError(CopydeskError):
    """A generator process that ended by itself: it carries its exit code, if that is known."""

    exit_code = 1

    def __init__(self, code: int | None) -> None:
        self.code = code
        super().__init__(f"a process that sends requests ended by itself (exit code {code})")


class Generators:
    """Starts processes when they are first needed and ends them at the end of the `async with`.

    `unasked` counts what came, in all flights that are over, and was no answer to a request. `stalls` are the
    moments of the last flight in which a process was not run, in seconds from its start.
    """

    def __init__(self, target: Target) -> None:
        self.unasked = 0
        self.stalls: tuple[Stall, ...] = ()
        self._target = target
        self._processes: list[asyncio.subprocess.Process] = []
        self._sent = 0

    async def __aenter__(self) -> Generators:
        """Begin without a process."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the processes; what they have in flight is abandoned."""
        for process in self._processes:
            if process.stdin is not None:
                process.stdin.close()
        for process in self._processes:
            await _ended(process)

    async def fly(self, offsets: Sequence[float], *, processes: int = 1, grace: float = 60.0) -> list[Sample]:
        """Send a request at each of `offsets`, and return what became of each, moments in seconds from the start.

        Requests are dealt out to the processes in turn, so that each has the same load at any moment. A later call
        goes on with the target's bodies where this one stopped. See `copydesk.loadtest.generator.fly`.

        Raises:
            GeneratorError: A process ended by itself.
        """
        samples, _ = await self._fly(offsets, processes, grace, None, lambda tally: True)
        return samples

    async def fly_while(
        self,
        offsets: Sequence[float],
        watch: Watch,
        promising: Callable[[Tally], bool],
        *,
        processes: int = 1,
        grace: float = 60.0,
    ) -> tuple[list[Sample], float | None]:
        """Do as `fly` does until `promising` is false of what is known; then end it.

        Returns the samples, and None or up to which second each request's fate was known when it was ended: what
        was due after that may have been cut off before its time.

        Raises:
            GeneratorError: A process ended by itself.
        """
        return await self._fly(offsets, processes, grace, watch, promising)

    async def _fly(
        self,
        offsets: Sequence[float],
        processes: int,
        grace: float,
        watch: Watch | None,
        promising: Callable[[Tally], bool],
    ) -> tuple[list[Sample], float | None]:
        await self._grow(processes)
        loop = asyncio.get_running_loop()
        start = loop.time() + LEAD_S + LEAD_S_A_REQUEST * len(offsets)
        first, self._sent = self._sent, self._sent + len(offsets)
        tallies = [Tally()] * processes
        ended: float | None = None

        async def carry_out(i: int) -> Outcomes:
            nonlocal ended
            share = Assignment(
                start=start,
                offsets=tuple(offsets[i::processes]),
                first=first + i,
                step=processes,
                grace=grace,
                watch=watch,
            )
            await _tell(self._processes[i], frame(share))
            while isinstance(told := await _told(self._processes[i]), Tally):
                tallies[i] = told
                if ended is None and watch is not None and not promising(Tally.sum(tallies)):
                    ended = loop.time() - start - watch.slo_s
                    for process in self._processes[:processes]:
                        await _tell(process, frame(Stop()))
            return told

        parts = await asyncio.gather(*(carry_out(i) for i in range(processes)))
        self.unasked += sum(part.unasked for part in parts)
        self.stalls = merged([Stall(one.at - start, one.seconds) for part in parts for one in part.stalls])
        samples = [sample for part in parts for sample in part.samples(start)]
        samples.sort(key=lambda sample: sample.planned)
        return samples, ended

    async def _grow(self, processes: int) -> None:
        while len(self._processes) < processes:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "copydesk.loadtest.process",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
            self._processes.append(process)
            await _tell(process, frame(self._target))
            # Its first plan shall not start before it has: an empty one shows that it listens.
            await _tell(process, frame(Assignment(start=0.0, offsets=(), first=0, step=1, grace=0.0)))
            await _told(process)


async def _told(process: asyncio.subprocess.Process) -> Outcomes | Tally:
    assert process.stdout is not None
    told = await receive(process.stdout, read_told)
    if told is None:
        raise GeneratorError(await process.wait())
    return told


async def _tell(process: asyncio.subprocess.Process, message: bytes) -> None:
    assert process.stdin is not None
    try:
        process.stdin.write(message)
        await process.stdin.drain()
    except (BrokenPipeError, ConnectionResetError) as error:
        raise GeneratorError(process.returncode) from error


async def _ended(process: asyncio.subprocess.Process) -> None:
    try:
        async with asyncio.timeout(END_S):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
