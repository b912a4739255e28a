"""Latencies as counts in buckets: differences, sums and percentiles."""

from __future__ import annotations

from collections.abc import Sequence

from copydesk.common.messages import LATENCY_BOUNDS_MS

BUCKETS = len(LATENCY_BOUNDS_MS) + 1
NOTHING = (0,) * BUCKETS


def difference(newer: Sequence[int], older: Sequence[int]) -> tuple[int, ...] | None:
    """Return what was counted between two totals of the same run, None if these cannot be."""
    counts = tuple(after - before for after, before in zip(newer, older, strict=True))
    return counts if min(counts) >= 0 else None


def percentile_ms(counts: Sequence[int], part: float) -> float | None:
    """Return the latency that a `part` of the requests did not exceed, None without requests.

    Within a bucket requests are taken to be spread evenly. The last bound stands for all that took longer.
    """
    total = sum(counts)
    if total <= 0:
        return None
    rank, below = part * total, 0
    for bucket, upper in enumerate(LATENCY_BOUNDS_MS):
        count = counts[bucket]
        if count and below + count >= rank:
            lower = LATENCY_BOUNDS_MS[bucket - 1] if bucket else 0
            return lower + (upper - lower) * (rank - below) / count
        below += count
    return float(LATENCY_BOUNDS_MS[-1])
