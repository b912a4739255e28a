"""When requests are due, decided before the first one is sent.

A generator that sleeps an interval between requests falls behind by every delay of its own, and one that waits
for answers slows down exactly when the service does. Moments that are fixed beforehand do neither.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from copydesk.common.errors import CopydeskError


class PlanError(CopydeskError):
    """A plan that cannot be: it carries the `name` of the setting and its `value`."""

    def __init__(self, name: str, value: float, expected: str = "a finite number above 0") -> None:
        self.name = name
        self.value = value
        super().__init__(f"{name} is {value}, expected {expected}")


@dataclass(frozen=True, slots=True)
class Plan:
    """Arrivals at `offsets`, ascending seconds from the start, meant to make `rate` requests a second."""

    offsets: tuple[float, ...]
    rate: float

    @classmethod
    def constant(cls, rate: float, duration: float) -> Plan:
        """Plan evenly spaced arrivals, the first at once.

        Each offset is computed from its index, so that rounding does not add up.

        Raises:
            PlanError: `rate` (1/s) or `duration` (s) is not above 0.
        """
        _require_positive(rate=rate, duration=duration)
        return cls(tuple(index / rate for index in range(math.ceil(rate * duration))), rate)

    @classmethod
    def poisson(cls, rate: float, duration: float, rng: random.Random) -> Plan:
        """Plan arrivals of many independent users: exponential gaps with mean `1 / rate`, drawn from `rng`.

        Raises:
            PlanError: `rate` (1/s) or `duration` (s) is not above 0.
        """
        _require_positive(rate=rate, duration=duration)
        offsets: list[float] = []
        offset = rng.expovariate(rate)
        while offset < duration:
            offsets.append(offset)
            offset += rng.expovariate(rate)
        return cls(tuple(offsets), rate)

    @classmethod
    def counted_poisson(cls, rate: float, duration: float, rng: random.Random) -> Plan:
        """Plan a Poisson process that happens to have as many arrivals as it has on average, at least one.

        Given their number, the arrivals of a Poisson process are independent and uniform; so the bursts are those
        of life, while two runs at one rate offer the same work.

        Raises:
            PlanError: `rate` (1/s) or `duration` (s) is not above 0.
        """
        _require_positive(rate=rate, duration=duration)
        count = max(1, round(rate * duration))
        return cls(tuple(sorted(rng.random() * duration for _ in range(count))), rate)

    @classmethod
    def ramp(cls, first: float, last: float, duration: float, rng: random.Random) -> Plan:
        """Plan a Poisson process whose rate goes in a straight line from `first` to `last`; one of them may be 0.

        Unit-rate arrivals are put through the inverse of the expected count at a time (Lewis and Shedler, Naval
        Res. Logist. Q. 26, 1979).

        Raises:
            PlanError: A rate is below 0, both are 0, or `duration` (s) is not above 0.
        """
        _require_positive(duration=duration)
        for name, value in (("first rate", first), ("last rate", last)):
            if not (math.isfinite(value) and value >= 0):
                raise PlanError(name, value, "a finite number, 0 or above")
        mean = (first + last) / 2.0
        _require_positive(rate=mean)
        growth = (last - first) / duration
        counts = cls.poisson(1.0, mean * duration, rng).offsets
        return cls(tuple(min(_when(count, first, growth), duration) for count in counts), mean)

    @classmethod
    def burst(
        cls, rate: float, peak: float, duration: float, *, at: float, length: float, rng: random.Random
    ) -> Plan:
        """Plan a Poisson process of `rate`, and of `peak` from second `at` on for `length` seconds.

        Raises:
            PlanError: A rate or a time is not above 0, or the burst does not end within `duration` (s).
        """
        _require_positive(rate=rate, peak=peak, duration=duration, at=at, length=length)
        after = duration - at - length
        if after < 0:
            raise PlanError("burst end", at + length, f"at most the duration, {duration:g}")
        pieces = [(rate, at), (peak, length)] + ([(rate, after)] if after else [])
        offsets, start = [], 0.0
        for part_rate, part in pieces:
            offsets += [start + offset for offset in cls.poisson(part_rate, part, rng).offsets]
            start += part
        return cls(tuple(offsets), len(offsets) / duration)

    @classmethod
    def of_times(cls, times: Sequence[float], *, speed: float = 1.0) -> Plan:
        """Plan arrivals at `times`, ascending seconds of any clock, `speed` times as fast.

        Raises:
            PlanError: `speed` is not above 0.
        """
        _require_positive(speed=speed)
        if not times:
            return cls((), 0.0)
        offsets = tuple((time - times[0]) / speed for time in times)
        return cls(offsets, (len(offsets) - 1) / offsets[-1] if offsets[-1] > 0 else float(len(offsets)))

    def then(self, other: Plan, after: float) -> Plan:
        """Return this plan followed by another that starts at second `after`; the rate is the other's."""
        return Plan(self.offsets + tuple(after + offset for offset in other.offsets), other.rate)


def _when(count: float, first: float, growth: float) -> float:
    """Return when `count` arrivals are expected, at a rate of `first` that grows by `growth` a second."""
    # The root of growth/2 t^2 + first t = count in the form that is exact for a growth of 0 as well.
    root = math.sqrt(max(0.0, first * first + 2.0 * growth * count))
    return 2.0 * count / (first + root) if first + root > 0 else 0.0


def _require_positive(**settings: float) -> None:
    for name, value in settings.items():
        if not (math.isfinite(value) and value > 0):
            raise PlanError(name, value)
