"""When requests are due, decided before the first one is sent.

A generator that sleeps an interval between requests falls behind by every delay of its own, and one that waits
for answers slows down exactly when the service does. Moments that are fixed beforehand do neither.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from copydesk.common.errors import CopydeskError


class PlanError(CopydeskError):
    """A plan that cannot be: it carries the `name` of the setting and its `value`."""

    def __init__(self, name: str, value: float) -> None:
        self.name = name
        self.value = value
        super().__init__(f"{name} is {value}, expected a finite number above 0")


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


def _require_positive(**settings: float) -> None:
    for name, value in settings.items():
        if not (math.isfinite(value) and value > 0):
            raise PlanError(name, value)
