"""Where trials are held: the fleet behind a URL, asked by generator processes."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import msgspec

from copydesk.common.errors import CopydeskError
from copydesk.loadtest.generators import Generators
from copydesk.loadtest.plan import Plan
from copydesk.loadtest.report import nearest_rank
from copydesk.loadtest.sample import Sample
from copydesk.loadtest.search import Measure, Purpose
from copydesk.loadtest.tally import Tally, Watch
from copydesk.loadtest.trial import Trial, Window, weigh
from copydesk.loadtest.verdict import Rules, may_pass

ALONE = 20
"""Requests one at a time, to learn how fast an idle fleet is."""
SETTLE_S = 30.0
"""How long a fleet may take to come to rest after a trial that was too much for it."""
CALM_S = 5.0
"""Before what could not be sent in time is sent again: whatever else ran on the machine may be over."""

Check = Callable[[], Awaitable[None]]
"""Makes sure that the fleet is still the one that is measured, or raises."""


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """How long trials are.

    A plain one measures for `seconds`, and longer where that would be fewer than `arrivals`: below 299, not even a
    trial without a miss shows that less than 1 % do. Before that it sends at the same rate for `warm_s`.
    """

    seconds: float = 20.0
    arrivals: int = 500
    warm_s: float = 3.0

    def window(self, rate: float, length: int) -> Window:
        """Return what part of a trial counts; at the rate wanted it holds a whole number of arrivals."""
        count = length * max(self.arrivals, math.ceil(rate * self.seconds))
        return Window(self.warm_s, self.warm_s + count / rate)


class Scouted(msgspec.Struct, frozen=True, kw_only=True):
    """What was learnt of a fleet before the first trial.

    The latency of requests one at a time (`best_ms` the lowest, `alone_ms` the median), and the most requests a
    second that batches of all shapes came to: an estimate from which to begin, and no more.
    """

    best_ms: float
    alone_ms: float
    batch_rate: float


class Ground(Protocol):
    """Where trials are held."""

    async def trial(self, step: Measure, seed: str) -> Trial:
        """Hold a trial; the same seed gives the same arrivals."""
        ...


async def _unchecked() -> None:
    """Take the fleet for what it is."""


class NoAnswerError(CopydeskError):
    """The fleet fails even one request at a time: `kind` and `message` are of its last failure."""

    exit_code = 1

    def __init__(self, kind: str, message: str) -> None:
        self.kind = kind
        self.message = message
        super().__init__(f"the fleet does not answer a single request: {kind}: {_words(message)}")


def _words(body: str) -> str:
    """Return what an answer says is wrong; all of it in one line where it is not in the form of a gateway."""
    try:
        said = msgspec.json.decode(body, type=_Refusal).error.message
    except msgspec.DecodeError:
        said = body
    return " ".join(said.split())[:200]


class _Fault(msgspec.Struct, frozen=True):
    message: str


class _Refusal(msgspec.Struct, frozen=True):
    error: _Fault


class FleetGround:
    """The fleet that `generators` send to. `shapes` are the batches to warm, in requests at once.

    `check` is asked after each trial, before its outcome is believed.
    """

    def __init__(
        self,
        generators: Generators,
        timing: Timing,
        rules: Rules,
        *,
        shapes: Sequence[int] = (1,),
        check: Check = _unchecked,
    ) -> None:
        self._generators = generators
        self._timing = timing
        self._rules = rules
        self._shapes = shapes
        self._check = check

    async def scout(self) -> Scouted:
        """Warm every shape of batch, and learn how fast the fleet is alone and in batches.

        Raises:
            NoAnswerError: A request failed.
        """
        await self._warm()
        alone = [await self._one() for _ in range(ALONE)]
        latencies = sorted(1000.0 * sample.latency for sample in alone)
        rates = [await self._batch(shape) for shape in self._shapes]
        return Scouted(best_ms=latencies[0], alone_ms=nearest_rank(latencies, 0.5), batch_rate=max(rates))

    async def trial(self, step: Measure, seed: str) -> Trial:
        """Warm every shape of batch, then send Poisson arrivals at the rate of `step` and sum up what came of it.

        The load goes on for a moment after the part that counts, so that its last requests have company as well.
        It ends at once when the trial cannot pass any more.

        Raises:
            NoAnswerError: The fleet does not even answer a single request, before or after it: what became of the
                trial says nothing of its rate.
        """
        if step.purpose in (Purpose.RESEND, Purpose.ONCE_MORE):
            await asyncio.sleep(CALM_S)
        await self._warm()
        window = self._timing.window(step.rate, step.length)
        offsets = arrivals(step.rate, window, self._tail_s, random.Random(seed))
        due = sum(window.begin <= offset < window.end for offset in offsets)

        def promising(tally: Tally) -> bool:
            return may_pass(tally, due, self._rules)

        samples, until = await self._generators.fly_while(
            offsets, self._watch(window), promising, processes=step.processes, grace=self._grace_s
        )
        await self._settle()
        await self._check()
        return weigh(
            samples,
            window,
            rate=step.rate,
            slo_ms=self._rules.slo_ms,
            length=step.length,
            processes=step.processes,
            until=until,
        )

    def _watch(self, window: Window) -> Watch:
        slo_s, late_s = self._rules.slo_ms / 1000.0, self._rules.late_ms / 1000.0
        return Watch(begin=window.begin, end=window.end, slo_s=slo_s, late_s=late_s)

    def seconds(self, step: Measure) -> float:
        """Return about how long a trial takes, warming aside."""
        return self._timing.window(step.rate, step.length).end + self._tail_s

    @property
    def _tail_s(self) -> float:
        return min(self._rules.slo_ms / 1000.0, 2.0)

    @property
    def _grace_s(self) -> float:
        return 1.0 + 4.0 * self._rules.slo_ms / 1000.0

    async def _warm(self) -> None:
        for shape in self._shapes:
            samples = await self._generators.fly([0.0] * shape, grace=SETTLE_S)
            failures = [sample.failure for sample in samples if sample.failure is not None]
            if len(failures) == shape:
                raise NoAnswerError(failures[-1].kind, failures[-1].message)

    async def _batch(self, shape: int) -> float:
        samples = await self._generators.fly([0.0] * shape, grace=SETTLE_S)
        good = sum(sample.failure is None for sample in samples)
        return good / max(sample.finished for sample in samples)

    async def _one(self) -> Sample:
        (sample,) = await self._generators.fly([0.0], grace=SETTLE_S)
        if sample.failure is not None:
            raise NoAnswerError(sample.failure.kind, sample.failure.message)
        return sample

    async def _settle(self) -> None:
        """Wait until the fleet answers promptly again: what was too much for it is still to be worked off.

        Raises:
            NoAnswerError: It does not come back.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + SETTLE_S
        while True:
            (sample,) = await self._generators.fly([0.0], grace=SETTLE_S)
            if sample.failure is None and 1000.0 * sample.latency < self._rules.slo_ms:
                return
            if loop.time() >= end:
                break
            await asyncio.sleep(0.2)
        if sample.failure is not None:
            raise NoAnswerError(sample.failure.kind, sample.failure.message)


def arrivals(rate: float, window: Window, tail_s: float, rng: random.Random) -> tuple[float, ...]:
    """Plan a Poisson process before, in and after `window`, which holds as many as the rate makes on average."""
    before = Plan.counted_poisson(rate, window.begin, rng)
    counted = Plan.counted_poisson(rate, window.seconds, rng)
    after = Plan.counted_poisson(rate, tail_s, rng)
    return before.then(counted, window.begin).then(after, window.end).offsets


def batch_shapes(capacity: int) -> tuple[int, ...]:
    """Return the powers of two below `capacity`, and `capacity`: the shapes that engines prepare for."""
    powers = [2**power for power in range(capacity.bit_length()) if 2**power < capacity]
    return (*powers, max(1, capacity))
