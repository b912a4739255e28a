"""How sure one can be of a share that was counted, and of the difference between two."""

from __future__ import annotations

from math import sqrt
from typing import NamedTuple


class Interval(NamedTuple):
    """Bounds between which something lies."""

    low: float
    high: float


def wilson(hits: int, number: int, z: float) -> Interval:
    """Return the score interval of a proportion for `z` standard deviations; (0, 1) where nothing was counted.

    Wilson, "Probable inference, the law of succession, and statistical inference", JASA 22 (1927).
    """
    if number <= 0:
        return Interval(0.0, 1.0)
    share, square = hits / number, z * z
    centre = share + square / (2 * number)
    spread = z * sqrt(share * (1 - share) / number + square / (4 * number * number))
    scale = 1 + square / number
    return Interval(max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale))


def difference(hits: int, number: int, other_hits: int, other_number: int, z: float) -> Interval:
    """Return bounds of how much larger the first proportion is than the other.

    Newcombe, "Interval estimation for the difference between independent proportions", Statistics in Medicine 17
    (1998), method 10: it is made of two score intervals, and so right for small numbers and shares near 0.
    """
    if number <= 0 or other_number <= 0:
        return Interval(-1.0, 1.0)
    one, other = hits / number, other_hits / other_number
    mine, theirs = wilson(hits, number, z), wilson(other_hits, other_number, z)
    down = sqrt((one - mine.low) ** 2 + (theirs.high - other) ** 2)
    up = sqrt((mine.high - one) ** 2 + (other - theirs.low) ** 2)
    return Interval(max(-1.0, one - other - down), min(1.0, one - other + up))
