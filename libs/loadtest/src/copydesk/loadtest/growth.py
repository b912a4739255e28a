"""Whether a series grows: the test by which a queue that builds up is told from one that only swings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from copydesk.loadtest.bounds import student_tail

LEAST_POINTS = 5
"""Below that a trend cannot be told from its noise."""


def growth_p_value(series: Sequence[float]) -> float:
    """Return a bound on the probability of growth like this in a series that does not grow.

    Two tests share the answer (Bonferroni). One looks for a slope among values that swing around a line, the other
    for a drift of something that wanders: near its limit the queue of a healthy server wanders far, and one that
    builds up leaves any line behind.
    """
    if len(series) < LEAST_POINTS:
        return 1.0
    return min(1.0, 2.0 * min(slope_p_value(series), drift_p_value(series)))


def slope_p_value(series: Sequence[float]) -> float:
    """Test the slope of least squares, whose error is corrected for what neighbours have in common.

    The length of a queue a moment ago says much about its length now: n such values count as n (1 - r) / (1 + r)
    independent ones, with r the correlation of neighbouring residuals (Santer et al., J. Geophys. Res. 105, 2000).
    """
    n = len(series)
    slope, residuals = _line(series)
    if slope <= 0.0:
        return 1.0
    squares = sum(residual * residual for residual in residuals)
    if squares <= 1e-18 * (slope * n) ** 2:
        return 0.0
    neighbours = sum(a * b for a, b in pairwise(residuals)) / squares
    common = min(max(neighbours, 0.0), 0.99)
    freedom = max(n * (1.0 - common) / (1.0 + common) - 2.0, 1.0)
    error = math.sqrt(squares / freedom / (n * (n * n - 1.0) / 12.0))
    return student_tail(slope / error, freedom)


def drift_p_value(series: Sequence[float]) -> float:
    """Test the mean step from one value to the next, as of a random walk; what swings takes back each step."""
    steps = [after - before for before, after in pairwise(series)]
    n = len(steps)
    mean = sum(steps) / n
    if mean <= 0.0:
        return 1.0
    variance = sum((step - mean) ** 2 for step in steps) / (n - 1)
    if variance <= 1e-18 * mean * mean:
        return 0.0
    return student_tail(mean / math.sqrt(variance / n), n - 1.0)


def _line(series: Sequence[float]) -> tuple[float, list[float]]:
    """Fit a line by least squares; return its slope a step, and what is left over it."""
    n = len(series)
    centre, mean = (n - 1) / 2.0, sum(series) / n
    slope = sum((i - centre) * (y - mean) for i, y in enumerate(series)) / (n * (n * n - 1.0) / 12.0)
    return slope, [y - mean - slope * (i - centre) for i, y in enumerate(series)]
