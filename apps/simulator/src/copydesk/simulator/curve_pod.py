"""A pod as a queue: it works on all that it holds at once, as fast as a certificate's curve says of so many.

With n requests it answers `rate(n)` a second, so that each of them advances by `rate(n) / n` of a mean request a
second, whoever comes or leaves meanwhile: processor sharing with a rate that depends on the state. How much work a
request is is log-normal around 1, and so wide that a constant load has the measured 99th percentile.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Generic, TypeVar

import numpy as np

from copydesk.simulator.profile import Profile

T = TypeVar("T")

_Z99 = 2.3263478740408408


@dataclass(frozen=True, slots=True)
class Curve:
    """By the number of requests that a pod holds: the work on each of them in a second, and its spread."""

    speeds: tuple[float, ...]
    spreads: tuple[float, ...]

    @classmethod
    def of(cls, profile: Profile) -> Curve:
        """Read a profile off at whole numbers of requests."""
        numbers = np.arange(1.0, math.ceil(profile.concurrencies[-1]) + 1.0)
        rates = np.interp(numbers, profile.concurrencies, profile.rates)
        p99s = np.interp(numbers, profile.concurrencies, profile.p99s)
        means = 1000.0 * numbers / rates
        # P99 over the mean of a log-normal is exp(z s - s^2 / 2): solved for s.
        spreads = _Z99 - np.sqrt(np.maximum(0.0, _Z99**2 - 2.0 * np.log(np.maximum(1.0, p99s / means))))
        return cls((0.0, *(rates / numbers).tolist()), (0.0, *spreads.tolist()))

    def speed(self, held: int) -> float:
        """Return how much of a mean request is done of each of so many in a second."""
        last = len(self.speeds) - 1
        return self.speeds[held] if held <= last else self.speeds[last] * last / held

    def work(self, held: int, normal: float) -> float:
        """Return how much work the last of so many requests is, by a draw from a normal distribution."""
        spread = self.spreads[min(held, len(self.spreads) - 1)]
        return math.exp(spread * normal - 0.5 * spread * spread)


@dataclass(slots=True, eq=False)
class CurvePod(Generic[T]):
    """One pod, and what it holds."""

    index: int
    slots: int
    curve: Curve
    zone: str = ""
    alive: bool = True
    held: int = 0
    version: int = 0
    _done: float = 0.0
    _at: float = 0.0
    _ends: list[tuple[float, int, T]] = field(default_factory=list)
    _count: int = 0

    def begin(self, request: T, normal: float, now: float) -> float:
        """Take a request in; return when the next one will be done, if nothing changes."""
        self._advance(now)
        self.held += 1
        self._count += 1
        heappush(self._ends, (self._done + self.curve.work(self.held, normal), self._count, request))
        return self._next(now)

    def end(self, now: float) -> tuple[T, float]:
        """Return the request that is done now, and when the next one will be."""
        self._advance(now)
        self.held -= 1
        request = heappop(self._ends)[2]
        return request, self._next(now)

    def _advance(self, now: float) -> None:
        self._done += (now - self._at) * self.curve.speed(self.held)
        self._at = now

    def _next(self, now: float) -> float:
        self.version += 1
        if not self._ends:
            return math.inf
        return now + max(0.0, self._ends[0][0] - self._done) / self.curve.speed(self.held)
