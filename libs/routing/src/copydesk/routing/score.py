"""How costly one more request on a pod looks."""

from __future__ import annotations

from dataclasses import dataclass

LATENCY_FLOOR_MS = 1.0
"""Latencies decay towards zero while a pod idles; below this, only load tells pods apart."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A pod as the balancer sees it: requests it has, requests it can run at once, and its recent latency."""

    outstanding: int
    capacity: int
    latency_ms: float | None


def occupancy(standing: Standing) -> float:
    """Return how full the pod would be with one more request; 1.0 is exactly full."""
    return (standing.outstanding + 1) / standing.capacity


def better(first: Standing, second: Standing) -> bool:
    """Whether `first` should get the next request; on a tie it does.

    The score is occupancy times latency. A pod that has answered nothing yet is taken to be as fast as the one
    it is compared with: neither preferred for its ignorance nor starved by it.
    """
    if first.latency_ms is None or second.latency_ms is None:
        return occupancy(first) <= occupancy(second)
    first_cost = occupancy(first) * max(first.latency_ms, LATENCY_FLOOR_MS)
    return first_cost <= occupancy(second) * max(second.latency_ms, LATENCY_FLOOR_MS)
