"""A moving average of latency that believes bad news at once and good news slowly.

Peak-sensitive and exponentially decaying: a sample above the average replaces it; one below pulls it down with the
time constant `tau` (seconds). Read late, the average has decayed towards zero, so that a pod which failed and got
no traffic since is tried again. This is the load metric of Twitter's Finagle ("Beyond Round Robin: Load Balancing
for Latency", 2015).

An average is two numbers, kept by the caller: what it was, in the caller's unit, and when. It is not a number
(NaN) before the first sample.
"""

from __future__ import annotations

from math import exp, nan

TAU_SECONDS = 10.0

NOTHING = (nan, 0.0)
"""The average before the first sample."""


def value(average: float, at: float, now: float, tau: float) -> float | None:
    """Return the average as it stands at `now`, or None before the first sample."""
    if average != average:
        return None
    return average if now <= at else average * exp((at - now) / tau)


def observe(average: float, at: float, sample: float, now: float, tau: float) -> tuple[float, float]:
    """Return the average, and when it was that, once one more sample is taken in that was seen at `now`."""
    if sample < average:  # never so before the first
        weight = exp((at - now) / tau) if now > at else 1.0
        sample = average * weight + sample * (1.0 - weight)
    return sample, max(at, now)
