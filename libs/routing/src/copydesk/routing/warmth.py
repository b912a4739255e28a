"""Slow start: a pod that has just begun is not yet worth a whole one."""

from __future__ import annotations

COLDEST = 0.1
"""What a pod counts at first: with nothing it would never warm up."""


def warmth(age: float, warm: float) -> float:
    """Return what part of a whole pod one counts that began `age` seconds ago, if it takes `warm` to warm up.

    Caches, compiled kernels and CUDA graphs come with use. Without this a new pod, idle and without a latency, is
    the best choice of every gateway at once.
    """
    if warm <= 0.0 or age >= warm:
        return 1.0
    return max(COLDEST, age / warm)
