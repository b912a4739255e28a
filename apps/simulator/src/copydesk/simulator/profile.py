"""What one pod does under a load, as a certificate measured it, in a form that is quick to look up."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from copydesk.autoscaler.capacity import Capacity
from copydesk.loadtest.certificate import Certificate, CurvePoint, Hardware, Interval
from copydesk.simulator.trace import Seconds

ASSUMED_POD = Certificate(
    model="assumed",
    model_digest="",
    config_digest="",
    hardware=Hardware(name="assumed: one accelerator that does 1,200 requests/s"),
    slo_ms=1000.0,
    rate=1200.0,
    concurrency=300.0,
    interval=Interval(1200.0, 1200.0),
    curve=(
        CurvePoint(rate=100.0, concurrency=10.5, p50_ms=97.0, p99_ms=200.0),
        CurvePoint(rate=300.0, concurrency=35.3, p50_ms=108.0, p99_ms=230.0),
        CurvePoint(rate=600.0, concurrency=85.7, p50_ms=131.0, p99_ms=290.0),
        CurvePoint(rate=800.0, concurrency=133.3, p50_ms=153.0, p99_ms=350.0),
        CurvePoint(rate=900.0, concurrency=163.6, p50_ms=167.0, p99_ms=390.0),
        CurvePoint(rate=1000.0, concurrency=200.0, p50_ms=184.0, p99_ms=450.0),
        CurvePoint(rate=1100.0, concurrency=244.4, p50_ms=204.0, p99_ms=560.0),
        CurvePoint(rate=1150.0, concurrency=270.6, p50_ms=216.0, p99_ms=680.0),
        CurvePoint(rate=1200.0, concurrency=300.0, p50_ms=230.0, p99_ms=980.0),
        CurvePoint(rate=1225.0, concurrency=420.0, p50_ms=320.0, p99_ms=1900.0),
    ),
    made_at=0.0,
)
"""Used when no certificate is given. No measurement: a published account of a production fleet names 1,200
requests a second for a pod on an H100; the curve is a batch whose step takes 100 ms plus 0.5 ms a request.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """One pod. The arrays ascend together: rate, concurrency, median and 99th percentile of latency.

    `most` is the rate that it does not exceed whatever it is given, `deadline_s` the age at which gateways give a
    request up.
    """

    capacity: Capacity
    rates: Seconds
    concurrencies: Seconds
    p50s: Seconds
    p99s: Seconds
    deadline_s: float

    @classmethod
    def of(cls, certificate: Certificate) -> Profile:
        """Return what a certificate says of one pod."""
        points = sorted(certificate.curve, key=lambda point: point.concurrency)
        rates = np.maximum.accumulate([point.rate / certificate.pods for point in points])
        concurrencies = np.array([point.concurrency / certificate.pods for point in points])
        p50s = np.array([point.p50_ms for point in points])
        p99s = np.array([point.p99_ms for point in points])
        # At no load a request takes what it takes at the least load that was measured.
        return cls(
            Capacity.of(certificate),
            np.concatenate(([0.0], rates)),
            np.concatenate(([0.0], concurrencies)),
            np.concatenate((p50s[:1], p50s)),
            np.concatenate((p99s[:1], p99s)),
            2.0 * certificate.slo_ms / 1000.0,
        )

    @property
    def most(self) -> float:
        """The highest rate that was seen, in requests a second."""
        return float(self.rates[-1])

    def warming(self) -> tuple[float, ...]:
        """Return the part of `most` that a pod in slow start does in a fleet that is full, by percent of weight.

        Gateways compare occupancy times latency, and the occupancy of a new pod is divided by its weight. So it
        gets n requests where n times its latency is `weight` times that of a full pod; that is more than
        `weight` of their number, and still more of their rate, since the rate is concave.
        """
        costs = np.concatenate(([0.0], self.concurrencies[1:] ** 2 / np.maximum(self.rates[1:], 1e-9)))
        costs = np.maximum.accumulate(costs)
        held = np.interp(np.linspace(0.0, 1.0, 101) * costs[-1], costs, self.concurrencies)
        return tuple((np.interp(held, self.concurrencies, self.rates) / self.most).tolist())
