"""Which of two pods one more request costs less on."""

from __future__ import annotations

Standing = tuple[float, float | None]
"""A pod as the balancer sees it: how full it would be with one more request (1.0 is exactly full, more for a pod
that is not warm yet), and its recent latency in milliseconds, None while it has answered nothing. A plain tuple,
since two are made for each request."""

LATENCY_FLOOR_MS = 1.0
"""Latencies decay towards zero while a pod idles; below this, only load tells pods apart."""


def better(first: Standing, second: Standing, ratio: float = 1.0) -> bool:
    """Whether `first` should get the next request: unless it costs more than `ratio` times what `second` does.

    The cost is occupancy times latency. A pod that has answered nothing yet is taken to be as fast as the one
    it is compared with: neither preferred for its ignorance nor starved by it.
    """
    occupancy, latency = first
    other_occupancy, other_latency = second
    if latency is None or other_latency is None:
        return occupancy <= ratio * other_occupancy
    cost = occupancy * (latency if latency > LATENCY_FLOOR_MS else LATENCY_FLOOR_MS)
    other = other_occupancy * (other_latency if other_latency > LATENCY_FLOOR_MS else LATENCY_FLOOR_MS)
    return cost <= ratio * other
