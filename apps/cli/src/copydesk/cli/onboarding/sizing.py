"""How many pods a load takes, from what one pod holds. Pure arithmetic."""

from __future__ import annotations

from math import ceil

import msgspec

from copydesk.common.profile import CapacityPart

LOADS = (10.0, 100.0, 1000.0)
"""Requests a second for which the report says how many pods."""


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """Pods for `load` requests a second: as pods are loaded in quiet times, and the same were R* its lower end.

    `cautious` is None where the certificate knows no lower end above 0.
    """

    load: float
    pods: int
    cautious: int | None


def rate_at_target(capacity: CapacityPart) -> float:
    """Return the requests a second of a pod that holds `target_concurrency` in flight, read off the curve.

    Between points of the curve, and from none to the first, the rate is taken to grow evenly; beyond the last one
    it is R*.
    """
    before = (0.0, 0.0)
    for point in (*capacity.curve, (capacity.concurrency, capacity.max_rate)):
        if before[0] < capacity.target_concurrency <= point[0]:
            share = (capacity.target_concurrency - before[0]) / (point[0] - before[0])
            return min(capacity.max_rate, before[1] + share * (point[1] - before[1]))
        before = (point[0], point[1])
    return capacity.max_rate


def size_for(load: float, capacity: CapacityPart) -> Size:
    """Return how many pods a load takes."""
    each = rate_at_target(capacity)
    low = capacity.interval.low * each / capacity.max_rate
    return Size(load=load, pods=max(1, ceil(load / each)), cautious=max(1, ceil(load / low)) if low > 0 else None)
