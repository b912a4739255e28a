"""Means and slopes over the last seconds, from samples (moment, value) in the order of their moments."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

Samples = Sequence[tuple[float, float]]

BLOCK_S = 10.0
BLOCKS = 6


def mean(samples: Samples, seconds: float, now: float) -> float:
    """Return the mean of the samples of the last `seconds`, 0 if there are none."""
    found = [value for at, value in samples if at > now - seconds]
    return sum(found) / len(found) if found else 0.0


def lately(samples: Samples) -> float:
    """Return what both of the last two samples reach: a single one may be a slip."""
    return min(value for _, value in samples[-2:]) if len(samples) > 1 else 0.0


def slope(samples: Samples, now: float) -> float:
    """Return the rise a second over the last minute, as far as it is certain; 0 if it is not.

    The second smallest of the five rises between blocks of ten seconds, since the lead multiplies what is found
    by more than a minute: of a step, which moves two rises at most, and of noise, which moves all of them
    in all directions, little is left. More demand never makes it less. 0 until there are samples in each block.
    """
    sums, counts = [0.0] * BLOCKS, [0] * BLOCKS
    for at, value in samples:
        block = int((now - at) / BLOCK_S)
        if 0 <= block < BLOCKS:
            sums[block] += value
            counts[block] += 1
    if not all(counts):
        return 0.0
    means = [total / number for total, number in zip(sums, counts, strict=True)]
    rises = sorted(newer - older for newer, older in pairwise(means))
    return max(0.0, rises[1]) / BLOCK_S
