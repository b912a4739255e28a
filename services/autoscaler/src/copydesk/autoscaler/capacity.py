"""What one pod can do: from a capacity certificate to pods' worth of work.

Concurrency is what is observed, since it holds whatever a request costs; but it does not add up. A pod that runs
half as many requests answers each of them sooner, and so does more than half the work: on a certificate's curve
the rate is concave in the concurrency. Counting pods as concurrency over target would call for too few when the
fleet is idle. So concurrency is read off the curve first, as a share of the certified rate.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import accumulate

from copydesk.common.profile import CapacityPart
from copydesk.loadtest.certificate import Certificate


@dataclass(frozen=True, slots=True)
class Capacity:
    """One pod: C* (requests), R* (requests a second), and the share of R* done at each concurrency below C*.

    `concurrencies` and `shares` ascend from (0, 0) to (C*, 1). `measured`: by a certificate, not assumed.
    """

    concurrency: float
    rate: float
    slo_ms: float
    concurrencies: tuple[float, ...]
    shares: tuple[float, ...]
    measured: bool = True

    @classmethod
    def of(cls, certificate: Certificate) -> Capacity:
        """Return what a certificate says of one pod."""
        pods = certificate.pods
        curve = ((point.concurrency / pods, point.rate / pods) for point in certificate.curve)
        return cls._along(curve, certificate.concurrency_per_pod, certificate.rate_per_pod, certificate.slo_ms)

    @classmethod
    def profiled(cls, part: CapacityPart) -> Capacity:
        """Return what a model profile says of one pod."""
        return cls._along(part.curve, part.concurrency, part.max_rate, part.objective_ms)

    @classmethod
    def _along(cls, curve: Iterable[tuple[float, float]], full: float, rate: float, slo_ms: float) -> Capacity:
        points = [(concurrency, min(1.0, done / rate)) for concurrency, done in curve if concurrency < full]
        shares = accumulate([0.0, *(share for _, share in points), 1.0], max)
        return cls(full, rate, slo_ms, (0.0, *(concurrency for concurrency, _ in points), full), tuple(shares))

    @classmethod
    def assumed(cls, concurrency: float, slo_ms: float, rate: float = 0.0) -> Capacity:
        """Return what a pod may do that nobody has measured: its share of the rate is linear in its concurrency.

        Without a `rate`, a request is taken to last half the objective, so that a full pod keeps it (Little).
        """
        rate = rate or concurrency / (slo_ms / 2000.0)
        return cls(concurrency, rate, slo_ms, (0.0, concurrency), (0.0, 1.0), measured=False)

    def lessened(self, factor: float) -> Capacity:
        """Return a pod of which so much is left: it holds and does that part."""
        held = tuple(one * factor for one in self.concurrencies)
        return replace(self, concurrency=self.concurrency * factor, rate=self.rate * factor, concurrencies=held)

    def share(self, concurrency: float) -> float:
        """Return the part of R* that a pod does which has so many requests; above 1 where work waits."""
        if not concurrency > 0.0:
            return 0.0
        if concurrency >= self.concurrency:
            return concurrency / self.concurrency
        return _interpolate(concurrency, self.concurrencies, self.shares)

    def concurrency_at(self, share: float) -> float:
        """Return the concurrency at which a pod does that part of R*: the inverse of `share` up to 1."""
        if share >= 1.0:
            return self.concurrency * share
        return _interpolate(share, self.shares, self.concurrencies)

    def work(self, concurrency: float, pods: float) -> float:
        """Return how many pods' worth of work it is when so many pods have so many requests together."""
        return pods * self.share(concurrency / pods) if pods > 0.0 else 0.0


def _interpolate(x: float, xs: tuple[float, ...], ys: tuple[float, ...]) -> float:
    right = bisect_left(xs, x)
    if right == 0:
        return ys[0]
    if right == len(xs):
        return ys[-1]
    span = xs[right] - xs[right - 1]
    part = (x - xs[right - 1]) / span if span > 0.0 and math.isfinite(span) else 1.0
    return ys[right - 1] + part * (ys[right] - ys[right - 1])
