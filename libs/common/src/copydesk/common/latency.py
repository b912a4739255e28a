"""Latencies as counts in the buckets that messages have: one for each of `LATENCY_BOUNDS_MS`, and one above."""

from __future__ import annotations

from collections.abc import Sequence

from copydesk.common.messages import LATENCY_BOUNDS_MS

BUCKETS = len(LATENCY_BOUNDS_MS) + 1


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
