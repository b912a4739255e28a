"""Which of several is faster, from measurements that took turns. Pure arithmetic.

Whatever else a machine does in a round slows down all that are measured in it about alike. So two are compared
round by round, by the logarithm of the ratio of their rates, and the doubt is that of the mean over the rounds
(Student's t).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

import msgspec

_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""Student's t, 97.5 %, for 1 to 10 degrees of freedom; the last one serves for more, on the safe side."""


_UNKNOWN = 1e12
"""The end of an interval of which a single round tells nothing; JSON has no infinity."""


class Ratio(msgspec.Struct, frozen=True, kw_only=True):
    """How many times as fast one is as another, with its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def told(self) -> bool:
        """Whether the measurements tell which one is faster."""
        return not self.low <= 1.0 <= self.high


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """Sentences a second: the geometric mean of the rounds, with its 95 % interval."""

    value: float
    low: float
    high: float


def rate_of(rates: Sequence[float]) -> Rate:
    """Sum up the rates of all rounds, one at the least."""
    value, low, high = _mean([math.log(rate) for rate in rates])
    return Rate(value=value, low=low, high=high)


def ratio_of(ours: Sequence[float], theirs: Sequence[float]) -> Ratio:
    """Compare rates that were measured in the same rounds."""
    value, low, high = _mean([math.log(mine / other) for mine, other in zip(ours, theirs, strict=True)])
    return Ratio(value=value, low=low, high=high)


def _mean(logarithms: Sequence[float]) -> tuple[float, float, float]:
    centre = fmean(logarithms)
    count = len(logarithms)
    if count < 2:
        return math.exp(centre), 0.0, _UNKNOWN
    reach = _T[min(count - 1, len(_T)) - 1] * stdev(logarithms) / math.sqrt(count)
    return math.exp(centre), math.exp(centre - reach), math.exp(min(centre + reach, 700.0))
