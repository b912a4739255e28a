"""Means and slopes over the last seconds, from samples (moment, value) in the order of their moments."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

Samples = Sequence[tuple[float, float]]

BLOCK_S = 5.0
BLOCKS = 6


def mean(samples: Samples, seconds: float, now: float) -> float:
    """Return the mean of the samples of the last `seconds`, 0 if there are none."""
    found = [value for at, value in samples if at > now - seconds]
    return sum(found) / len(found) if found else 0.0


def slope(samples: Samples, now: float) -> float:
    """Return the rise a second over the last half minute: the median rise between blocks of five seconds.

    A median, since the lead multiplies what is found by more than a minute. A step in demand moves two of the five
    rises at most, and is no ramp: a line through it would promise as much again and more. 0 until there are
    samples in each block.
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
    return median(newer - older for newer, older in pairwise(means)) / BLOCK_S
