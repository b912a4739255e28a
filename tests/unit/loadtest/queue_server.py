"""A server in virtual time: so many slots, first come first served; and trials made of what it answers."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable

from copydesk.loadtest import Sample
from copydesk.loadtest.ground import Timing, arrivals
from copydesk.loadtest.search import Measure
from copydesk.loadtest.trial import Trial, weigh

Service = Callable[[random.Random], float]


class QueueGround:
    """Where trials are held: a queue of `slots` servers that take 20 ms on average, or as `service` says."""

    def __init__(self, slots: int, service: Service, *, seconds: float = 10.0, slo_ms: float = 200.0) -> None:
        self.slots, self.service, self.seconds, self.slo_ms = slots, service, seconds, slo_ms
        self.steps: list[Measure] = []

    async def trial(self, step: Measure, seed: str) -> Trial:
        self.steps.append(step)
        rng = random.Random(seed)
        window = Timing(seconds=self.seconds).window(step.rate, step.length)
        offsets = arrivals(step.rate, window, 0.2, rng)
        free = [0.0] * self.slots
        samples = []
        for offset in offsets:
            done = max(offset, heapq.heappop(free)) + self.service(rng)
            heapq.heappush(free, done)
            samples.append(Sample(offset, offset, done))
        return weigh(
            samples, window, rate=step.rate, slo_ms=self.slo_ms, length=step.length, processes=step.processes
        )
