"""For how many a request counts, where one queue delays many of them.

A share of independent requests is binomial. Those of one queue are slow together: a queue that is long for a
second delays all of that second, and a hundred slow requests may be no more than one event.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

BLOCKS = 10
"""In how many pieces a run is cut: few, so that each is long beside what its requests have in common."""
_MOST_COMMON = 0.9
"""What neighbouring pieces have in common, as a correlation, is taken for no more than that."""


def design_effect(hits: Sequence[bool]) -> float:
    """Return how many times as much the share of `hits` varies as it would if each came by itself; at least 1.

    `hits` are in order of time. The variance is estimated from the counts of consecutive pieces (batch means),
    corrected for what neighbours have in common as in `copydesk.loadtest.growth`, and compared with the binomial
    one (the design effect of Kish, "Survey Sampling", 1965). n such requests tell as much as n divided by it
    independent ones, with which exact bounds hold again (Korn and Graubard, Survey Methodology 24, 1998). Without
    a hit, or with nothing else, nothing can be told, and it is 1.
    """
    n, total = len(hits), sum(hits)
    if not 0 < total < n or n < 2 * BLOCKS:
        return 1.0
    share = total / n
    edges = [i * n // BLOCKS for i in range(BLOCKS + 1)]
    left = [sum(hits[a:b]) - share * (b - a) for a, b in pairwise(edges)]
    squares = sum(one * one for one in left)
    if squares == 0.0:
        return 1.0
    common = min(max(sum(a * b for a, b in pairwise(left)) / squares, 0.0), _MOST_COMMON)
    variance = BLOCKS / (BLOCKS - 1) * squares * (1.0 + common) / (1.0 - common)
    return max(1.0, variance / (n * share * (1.0 - share)))
