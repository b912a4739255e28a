"""The engines take turns: all are started, all but one are frozen, and each is measured in every round."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import psutil

from copydesk.cli.bench.contender import Contender
from copydesk.cli.bench.engine_process import StartError
from copydesk.cli.bench.figures import CORRECTIONS, RANDOM
from copydesk.cli.bench.guard import Guard
from copydesk.cli.bench.measure import Measurement, measure
from copydesk.cli.bench.result import LeftOut
from copydesk.cli.bench.rival_models import ConversionError
from copydesk.cli.bench.schedule import load, order, share
from copydesk.cli.bench.setting import OURS, VLLM, Setting
from copydesk.cli.bench.workload import Prompt

T = TypeVar("T")
Say = Callable[[str], None]

_WARM_UP_ALONE = 2
_PATIENCE_SECONDS = 30.0
_GIB = 2**30
_MEMORY = {VLLM: 6 * _GIB}
_MEMORY_OTHERS = 3 * _GIB
"""What must be free before an engine starts: what it takes, and two for all else on the machine."""


class Starts(Protocol):
    """Starts a contender; raises `StartError` or `ConversionError`."""

    def start(self, setting: Setting) -> Contender:
        """Start an engine in a setting."""
        ...


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured: `alone` texts one at a time over all rounds, then `users` at a time, then random tokens.

    An empty `random` leaves the last out.
    """

    prompts: Sequence[Prompt]
    random: Sequence[Prompt]
    alone: int
    rounds: int
    users: tuple[int, ...]

    def measurements(self, settings: Sequence[Setting]) -> int:
        """How many measurements there will be."""
        random = sum(takes_random(setting) for setting in settings) if self.random else 0
        return self.rounds * (len(settings) * (1 + len(self.users)) + random)


@dataclass(slots=True)
class Outcome:
    """What the contest brought; also what it had brought when it was cut short."""

    measurements: list[Measurement] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    resident_mb: dict[str, float] = field(default_factory=dict)


def takes_random(setting: Setting) -> bool:
    """Whether a setting is measured on random tokens: ours and vLLM's without drafts, which could not help."""
    return setting.is_plain and setting.engine in (OURS, VLLM)


class Contest:
    """Runs a plan; whatever ends it, no process is left."""

    def __init__(self, starter: Starts, plan: Plan, say: Say) -> None:
        self._starter = starter
        self._plan = plan
        self._say = say
        self._contenders: list[Contender] = []
        self._guard = Guard()
        self._done = 0
        self._total = 0
        self.outcome = Outcome()

    async def run(self, settings: Sequence[Setting]) -> Outcome:
        """Start every setting, measure them in turn, end them all."""
        try:
            for number, setting in enumerate(settings, start=1):
                await self._admit(setting, f"{number} of {len(settings)}")
            self._total = self._plan.measurements([one.setting for one in self._contenders])
            for round_ in range(self._plan.rounds):
                for contender in order(list(self._contenders), round_):
                    await self._turn(contender, round_)
        finally:
            await self._end_all()
        return self.outcome

    async def _admit(self, setting: Setting, which: str) -> None:
        """Start an engine, warm it up, freeze it; note why if that fails."""
        self._say(f"starting {setting.name} ({which})")
        try:
            require_memory(setting, psutil.virtual_memory().available)
            contender = self._starter.start(setting)
        except (StartError, ConversionError) as error:
            self._leave_out(setting, error)
            return
        self._guard.watch(contender.process.pid)
        self._contenders.append(contender)
        with self._survived(contender):
            await self._patiently(contender.wait_ready(), f"starting {setting.name}")
            await self._patiently(self._warm_up(contender), f"warming up {setting.name}")
            self.outcome.versions[setting.engine] = contender.version
            self.outcome.resident_mb[setting.name] = round(contender.process.resident_bytes() / 1e6, 1)
            contender.process.freeze()

    async def _warm_up(self, contender: Contender) -> None:
        """As many users at once as later, for a smaller warm-up leaves the first large batch to pay for it."""
        users = max(self._plan.users)
        await self._checked(measure(contender, self._plan.prompts, range(_WARM_UP_ALONE), 1))
        await self._checked(
            measure(contender, self._plan.prompts, load(len(self._plan.prompts), users, 1)[:users], users)
        )

    async def _turn(self, contender: Contender, round_: int) -> None:
        with self._survived(contender):
            contender.process.thaw()
            plan, count = self._plan, len(self._plan.prompts)
            await self._note(contender, plan.prompts, share(plan.alone, plan.rounds, round_), 1, round_)
            for users in plan.users:
                await self._note(contender, plan.prompts, load(count, users), users, round_)
            if plan.random and takes_random(contender.setting):
                indices = range(len(plan.random))
                await self._note(contender, plan.random, indices, max(plan.users), round_, RANDOM)
            contender.process.freeze()

    async def _note(
        self,
        contender: Contender,
        prompts: Sequence[Prompt],
        indices: Sequence[int],
        users: int,
        round_: int,
        workload: str = CORRECTIONS,
    ) -> None:
        work = measure(contender, prompts, indices, users, round_=round_, workload=workload)
        found = await self._checked(self._patiently(work, f"measuring {contender.setting.name}"))
        self.outcome.measurements.append(found)
        self._done += 1
        what = "random tokens, " if workload == RANDOM else ""
        middle = sorted(found.latencies_ms)[len(found.latencies_ms) // 2]
        self._say(
            f"[{self._done}/{self._total}] {contender.setting.name}: {what}{users} at a time: "
            f"{found.requests_per_second:.2f} requests/s, P50 {middle:.0f} ms"
        )

    async def _checked(self, work: Awaitable[Measurement]) -> Measurement:
        """A rate with failed requests in it compares with nothing."""
        found = await work
        if found.failed:
            failures = "; ".join(found.failures)
            raise StartError(found.setting, f"{found.failed} requests failed: {failures}")
        return found

    @contextlib.contextmanager
    def _survived(self, contender: Contender) -> Iterator[None]:
        """Leave out, and end, an engine that fails in between."""
        try:
            yield
        except (StartError, OSError) as error:
            self._end(contender)
            self._contenders.remove(contender)
            reason = error.reason if isinstance(error, StartError) else str(error)
            self._leave_out(contender.setting, contender.process.failure(reason))

    def _leave_out(self, setting: Setting, error: Exception) -> None:
        log = error.log if isinstance(error, StartError) else ()
        self.outcome.left_out.append(LeftOut(setting=setting.name, reason=str(error), log=log))
        self._say(f"{setting.name} is left out: {error}")
        for line in log:
            self._say(f"    {line}")

    async def _patiently(self, work: Awaitable[T], what: str) -> T:
        """Say now and then that it still goes on."""
        task = asyncio.ensure_future(work)
        waited = 0.0
        try:
            while not (await asyncio.wait({task}, timeout=_PATIENCE_SECONDS))[0]:
                waited += _PATIENCE_SECONDS
                self._say(f"  still {what}, {waited:.0f} s")
        finally:
            task.cancel()
        return await task

    async def _end_all(self) -> None:
        for contender in self._contenders:
            self._end(contender)
        self._guard.close()
        for contender in self._contenders:
            with contextlib.suppress(Exception):
                await contender.close()

    def _end(self, contender: Contender) -> None:
        contender.process.kill()
        self._guard.release(contender.process.pid)


def require_memory(setting: Setting, available: int) -> None:
    """Raise `StartError` where an engine would push others out of memory."""
    needed = _MEMORY.get(setting.engine, _MEMORY_OTHERS)
    if available < needed:
        reason = f"{available / _GIB:.1f} GiB of memory are free, and it needs {needed / _GIB:.0f}"
        raise StartError(setting.name, reason)
