"""Latencies as counts in buckets: what was counted between two totals."""

from __future__ import annotations

from collections.abc import Sequence

from copydesk.common.latency import BUCKETS

NOTHING = (0,) * BUCKETS


def difference(newer: Sequence[int], older: Sequence[int]) -> tuple[int, ...] | None:
    """Return what was counted between two totals of the same run, None if these cannot be."""
    counts = tuple(after - before for after, before in zip(newer, older, strict=True))
    return counts if min(counts) >= 0 else None
