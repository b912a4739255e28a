"""What a policy is judged by."""

from __future__ import annotations

import msgspec
import numpy as np

from copydesk.simulator.run import Timeline
from copydesk.simulator.trace import Seconds

SHED_SHARE = 1e-4
"""A second in which more than this part was refused is a violation, however quick the rest was."""

PRICE_PER_HOUR = 4.0
"""Of a pod, in dollars: about what an hour of an H100 costs to rent."""

_Z99 = 2.3263478740408408
_Z = np.linspace(-8.0, 8.0, 2001)
_CDF = np.cumsum(np.exp(-0.5 * _Z * _Z))
_CDF /= _CDF[-1]


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """One policy on one trace.

    `slo_violation_seconds` counts the seconds whose 99th percentile was above the objective, or in which more than
    0.01 % were refused. `p99_ms` is that of all answers of the trace. `good_share` is the part of all requests
    that came in a second without violation, `late_share` the part of the answers that took longer than the
    objective, `shed_share` the part that was refused. `pods_mean` and `pods_most` are pods that were paid for.
    """

    slo_violation_seconds: int
    pod_hours: float
    moves: int
    cost: float
    p99_ms: float
    good_share: float
    late_share: float
    shed_share: float
    pods_mean: float
    pods_most: int


def violations(timeline: Timeline, slo_ms: float) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return for each second whether the objective was missed."""
    late = (timeline.p99_ms > slo_ms) & (timeline.served > 0.0)
    return late | (timeline.shed > SHED_SHARE * np.maximum(timeline.arrivals, 1.0))


def score(timeline: Timeline, slo_ms: float, price: float) -> Score:
    """Judge a run by an objective; `price` is that of a pod hour."""
    bad = violations(timeline, slo_ms)
    hours = float(timeline.paid.sum()) / 3600.0
    requests = max(1.0, float(timeline.arrivals.sum()))
    return Score(
        slo_violation_seconds=int(bad.sum()),
        pod_hours=round(hours, 2),
        moves=timeline.moves,
        cost=round(hours * price, 2),
        p99_ms=round(_quantile(timeline, 0.99), 1),
        good_share=round(1.0 - float(timeline.arrivals[bad].sum()) / requests, 7),
        late_share=round(1.0 - _within(timeline, slo_ms), 7),
        shed_share=round(float(timeline.shed.sum()) / requests, 7),
        pods_mean=round(float(timeline.paid.mean()), 1),
        pods_most=int(timeline.paid.max()),
    )


def _quantile(timeline: Timeline, part: float) -> float:
    """Return the latency that this part of all answers does not exceed, in milliseconds."""
    low, high = 0.1, float(max(1.0, timeline.p99_ms.max())) * 4.0
    for _ in range(40):
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if _within(timeline, middle) < part else (low, middle)
    return high


def _within(timeline: Timeline, ms: float) -> float:
    """Return the part of all answers that took no longer. Each second's latencies are log-normal after the
    wait."""
    answered = float(timeline.served.sum())
    if answered <= 0.0:
        return 1.0
    left = np.log(np.maximum(ms - timeline.wait_ms, 1e-3))
    p50, p99 = (np.log(np.maximum(q - timeline.wait_ms, 1e-3)) for q in (timeline.p50_ms, timeline.p99_ms))
    z = (left - p50) / np.maximum((p99 - p50) / _Z99, 1e-6)
    return float((timeline.served * _normal(z)).sum()) / answered


def _normal(z: Seconds) -> Seconds:
    return np.asarray(np.interp(z, _Z, _CDF), dtype=np.float64)
