"""A moving average of latency that believes bad news at once and good news slowly."""

from __future__ import annotations

from math import exp


class PeakEwma:
    """Peak-sensitive, exponentially decaying average of a cost, in the caller's unit.

    A sample above the average replaces it; one below pulls it down with the time constant `tau` (seconds). Read
    late, the average has decayed towards zero, so that a pod which failed and got no traffic since is tried
    again. This is the load metric of Twitter's Finagle ("Beyond Round Robin: Load Balancing for Latency", 2015).
    """

    __slots__ = ("_at", "_tau", "_value")

    def __init__(self, *, tau: float = 10.0) -> None:
        if tau <= 0:
            raise ValueError(f"tau must be above 0 seconds, not {tau}")
        self._tau = tau
        self._value: float | None = None
        self._at = 0.0

    def value(self, now: float) -> float | None:
        """Return the average as it stands at `now`, or None before the first sample."""
        value = self._value
        return value if value is None or now <= self._at else value * exp((self._at - now) / self._tau)

    def observe(self, sample: float, now: float) -> None:
        """Take in one sample, seen at `now`."""
        current = self._value
        if current is None or sample >= current:
            self._value = sample
        else:
            weight = exp((self._at - now) / self._tau) if now > self._at else 1.0
            self._value = current * weight + sample * (1.0 - weight)
        if now > self._at:
            self._at = now
