"""A server in virtual time: so many slots, first come first served; and trials made of what it answers."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable

from copydesk.loadtest import Sample
from copydesk.loadtest.ground import Timing, arrivals
from copydesk.loadtest.search import Measure
from copydesk.loadtest.trial import Trial, weigh

Service = Callable[[random.Random], float]


def highest_rate(slots: int, service_s: float, slo_s: float, share: float) -> float:
    """Return the rate at which the share of requests of M/M/c that take longer than the objective is `share`."""
    low, high = 0.0, slots / service_s
    for _ in range(60):
        rate = (low + high) / 2.0
        low, high = (rate, high) if _longer(slots, service_s, rate, slo_s) < share else (low, rate)
    return low


def _longer(slots: int, service_s: float, rate: float, time: float) -> float:
    """P(waiting + service > time) of M/M/c, first come first served, from Erlang's C."""
    load, blocked = rate * service_s, 1.0
    for slot in range(1, slots + 1):
        blocked = load * blocked / (slot + load * blocked)
    waits = blocked / (1.0 - load / slots * (1.0 - blocked))
    served, drained = 1.0 / service_s, slots / service_s - rate
    if drained == served:
        return (1.0 + waits * served * time) * math.exp(-served * time)
    swift, slow = math.exp(-served * time), math.exp(-drained * time)
    return (1.0 - waits) * swift + waits * (drained * swift - served * slow) / (drained - served)


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
