"""One run: what the fleet answers when all is well, then the load with the faults, then how it is afterwards."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from copydesk.chaos.census import Census
from copydesk.chaos.family import families
from copydesk.chaos.fleet_view import FleetWatch
from copydesk.chaos.growth import judge_growth
from copydesk.chaos.outcome import sum_up
from copydesk.chaos.report import ChaosReport
from copydesk.chaos.schedule import Strike
from copydesk.chaos.strikes import Arena
from copydesk.chaos.striking import Striking
from copydesk.chaos.task_counts import TaskCounts
from copydesk.chaos.verdict import Bars, End, judge
from copydesk.common.errors import CopydeskError
from copydesk.loadtest.client import OK, Client, Target, correction_bodies
from copydesk.loadtest.generators import Generators
from copydesk.loadtest.load_report import report_load
from copydesk.loadtest.plan import Plan
from copydesk.loadtest.pulse import Stall
from copydesk.loadtest.sample import RequestFailedError, Sample
from copydesk.loadtest.tally import Tally, Watch

TELL_S = 10.0
SETTLE_S = 60.0
"""How long the fleet may take to be whole, with nothing in flight, after the last request."""
HURRY_S = 10.0
"""The same for a run that was interrupted."""
LATE_S = 0.005
REQUEST_IDS = "chaos"
DEADLINE_HEADER = "X-Request-Deadline-Ms"


class NotWellError(CopydeskError):
    """The fleet does not answer even before anything is broken."""

    def __init__(self, text: str, reason: str) -> None:
        self.text = text
        self.reason = reason
        super().__init__(f"before any fault, {text[:40]!r} got no answer: {reason}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """What is to be done: `texts` are sent in turn to `url`, `rate` a second, for `seconds`.

    With `alike`, a text that gets another answer than before the faults is answered wrongly, where the fleet gives
    the same one alone and in company.
    `arena` is where `strikes` strike; without one, nothing does, and nothing is counted but the answers.
    """

    url: str
    texts: Sequence[str]
    rate: float
    seconds: float
    deadline_ms: float
    slo_ms: float
    seed: int
    headers: Mapping[str, str]
    alike: bool
    bars: Bars = field(default_factory=Bars)
    strikes: Sequence[Strike] = ()
    arena: Arena | None = None


class Run:
    """One run; `interrupt` ends it early, with a report of what was. `say` gets a line now and then."""

    def __init__(self, orders: Orders, say: Callable[[str], None]) -> None:
        self._orders = orders
        self._say = say
        self._loop = asyncio.get_running_loop()
        self._began = self._told = self._loop.time()
        self.interrupted = False
        self._watch = FleetWatch(orders.url, orders.headers)
        self._tasks = TaskCounts(orders.arena.pages if orders.arena else {}, orders.headers)
        self._census = Census(self._members, self._tasks.read)
        self._striking: Striking | None = None
        if orders.arena is not None:
            until = orders.seconds - 5.0
            self._striking = Striking(orders.arena, self._clock, self._watch.missing, until)

    def interrupt(self) -> None:
        """End the load at the next opportunity."""
        self.interrupted = True

    async def report(self) -> ChaosReport:
        """Do it all.

        Raises:
            NotWellError: The fleet does not answer before anything is broken.
            GeneratorError: A process that sends requests ended by itself.
        """
        try:
            return await self._all()
        finally:
            await self._watch.close()
            await self._tasks.close()

    async def _all(self) -> ChaosReport:
        orders = self._orders
        await self._watch.look()
        target = await self._target()
        plan = Plan.poisson(orders.rate, orders.seconds, random.Random(f"{orders.seed} load"))
        async with Generators(target) as generators:
            samples, seconds = await self._under_faults(generators, plan)
            unasked, stalls = generators.unasked, generators.stalls
        end = await self._settled()
        await self._census.count(self._clock)
        return self._report(samples, seconds, unasked, stalls, end)

    async def _target(self) -> Target:
        """Ask for each text once, and have the same answers expected from then on."""
        orders = self._orders
        headers = {**orders.headers, DEADLINE_HEADER: f"{orders.deadline_ms:.0f}"}
        bodies = correction_bodies(orders.texts)
        ids = f"{REQUEST_IDS}-{orders.seed}-"
        target = Target(url=orders.url, bodies=bodies, headers=headers, request_ids=ids)
        if not orders.alike:
            return target
        self._say(f"asking for {len(bodies)} sentences, alone and in company, before anything is broken")
        plain = Target(url=orders.url, bodies=bodies, headers=dict(orders.headers))
        alone, together = await _answers(plain, orders.texts, 1), await _answers(plain, orders.texts, len(bodies))
        if alone != together:
            self._say("answers depend on company in this arithmetic: another answer is not taken for a wrong one")
            return target
        return msgspec.structs.replace(target, answers=alone)

    async def _under_faults(self, generators: Generators, plan: Plan) -> tuple[list[Sample], float]:
        orders = self._orders
        watch = Watch(begin=0.0, end=orders.seconds + 1.0, slo_s=orders.deadline_ms / 1000.0, late_s=LATE_S)
        await generators.fly([])
        self._began = self._told = self._loop.time()
        beside = [asyncio.create_task(self._census.keep_on(self._clock))]
        if self._striking is not None:
            beside.append(asyncio.create_task(self._striking.carry_out(orders.strikes)))
        try:
            samples, until = await generators.fly_while(
                plan.offsets, watch, self._going_on, grace=2.0 * watch.slo_s + 1.0
            )
        finally:
            for task in beside:
                task.cancel()
            ended = await asyncio.gather(*beside, return_exceptions=True)
        for error in ended:
            if isinstance(error, Exception):
                raise error
        if until is None:
            return samples, orders.seconds
        return [sample for sample in samples if sample.planned < until], max(0.1, min(until, orders.seconds))

    def _going_on(self, tally: Tally) -> bool:
        now = self._loop.time()
        if now - self._told >= TELL_S:
            self._told = now
            faults = self._striking.now_on if self._striking else ()
            on = ", ".join(f"{one.kind} of {one.target}" for one in faults)
            told = f"{self._clock():5.0f} s of {self._orders.seconds:.0f}: {tally.missed} of {tally.due} missed"
            self._say(f"{told}; now {on}" if on else told)
        return not self.interrupted

    async def _settled(self) -> End:
        """Wait until nothing is in flight and everybody is in service, for as long as that may take."""
        end = self._loop.time() + (HURRY_S if self.interrupted else SETTLE_S)
        while True:
            in_flight, missing = await self._watch.in_flight(), await self._watch.missing()
            away = tuple(sorted({*missing, *self._away()}))
            idle = in_flight == 0 or self._orders.arena is None
            if (idle and not away) or self._loop.time() >= end:
                arena = self._orders.arena
                resized = arena.resized() if arena else ()
                return End(in_flight=in_flight, missing=away, resized=resized)
            await asyncio.sleep(0.5)

    def _away(self) -> set[str]:
        """Name the processes that are not there, of those that were at the start."""
        arena = self._orders.arena
        return set() if arena is None else set(arena.names) - set(arena.roots())

    def _report(
        self, samples: list[Sample], seconds: float, unasked: int, stalls: tuple[Stall, ...], end: End
    ) -> ChaosReport:
        orders = self._orders
        deadline_s = orders.deadline_ms / 1000.0
        outcome = sum_up(samples, deadline_s, unasked, stalls)
        growths = judge_growth(self._census.courses)
        struck = sorted(self._striking.struck, key=lambda one: one.began) if self._striking else []
        shape = f"poisson {orders.rate:g}/s"
        return ChaosReport(
            url=orders.url,
            model=self._watch.model,
            seed=orders.seed,
            seconds=seconds,
            rate=orders.rate,
            deadline_ms=orders.deadline_ms,
            interrupted=self.interrupted,
            outcome=outcome,
            load=report_load(samples, shape=shape, seconds=seconds, slo_ms=orders.slo_ms, processes=1),
            struck=tuple(struck),
            stalls=stalls,
            growths=growths,
            courses=self._census.courses,
            checks=judge(outcome, growths, end, orders.bars, own=orders.arena is not None),
        )

    def _members(self) -> Mapping[int, str]:
        arena = self._orders.arena
        return {} if arena is None else families(arena.roots())

    def _clock(self) -> float:
        return self._loop.time() - self._began


class _Corrected(msgspec.Struct, frozen=True):
    corrected: str


async def _answers(target: Target, texts: Sequence[str], at_once: int) -> tuple[str, ...]:
    """Ask for each text, `at_once` at a time."""
    client, room = Client(target), asyncio.Semaphore(at_once)

    async def ask(index: int) -> str:
        async with room:
            try:
                answer = await client.ask(index)
                if answer.status != OK:
                    raise NotWellError(
                        texts[index], f"{answer.status} {answer.body[:200].decode('utf-8', 'replace')}"
                    )
                return msgspec.json.decode(answer.body, type=_Corrected).corrected
            except (RequestFailedError, msgspec.DecodeError) as error:
                raise NotWellError(texts[index], str(error)) from error

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(ask(index)) for index in range(len(texts))]
    except* NotWellError as errors:
        raise errors.exceptions[0] from None
    finally:
        client.close()
    return tuple(task.result() for task in tasks)
