"""For how many a request counts, where one queue delays many of them.

A share of independent requests is binomial. Those of one queue are slow together: a queue that is long for a
second delays all of that second, and a hundred slow requests may be no more than one event.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

BLOCKS = 20
"""In how many pieces a run is cut: each shall be long beside what neighbours have in common."""


def design_effect(hits: Sequence[bool]) -> float:
    """Return how many times as much the share of `hits` varies as it would if each came by itself; at least 1.

    `hits` are in order of time. The variance is estimated from the counts of consecutive pieces (batch means), and
    compared with the binomial one (the design effect of Kish, "Survey Sampling", 1965). n such requests tell as
    much as n divided by it independent ones, with which exact bounds hold again (Korn and Graubard, Survey
    Methodology 24, 1998). Without a hit, or with nothing else, nothing can be told, and it is 1.
    """
    n, total = len(hits), sum(hits)
    if not 0 < total < n or n < 2 * BLOCKS:
        return 1.0
    share = total / n
    edges = [i * n // BLOCKS for i in range(BLOCKS + 1)]
    left = (sum(hits[a:b]) - share * (b - a) for a, b in itertools.pairwise(edges))
    variance = BLOCKS / (BLOCKS - 1) * sum(one * one for one in left)
    return max(1.0, variance / (n * share * (1.0 - share)))
