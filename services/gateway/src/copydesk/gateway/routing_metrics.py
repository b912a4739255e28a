"""What the gateway counts of its choices, and how it stands with its pods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from copydesk.gateway.fleet import Fleet
from copydesk.gateway.metrics import Family, Labels

REFUSED_BY_BUDGET = "refused_by_budget"


class RoutingMetrics:
    """Counts of hedges and of what was shed, by reason."""

    def __init__(self) -> None:
        self._hedges: Counter[str] = Counter()
        self._shed: Counter[str] = Counter()

    def hedge(self, reason: str) -> None:
        """Count a request that was sent to a second pod beside the first, or (`REFUSED_BY_BUDGET`) was not."""
        self._hedges[reason] += 1

    def shed(self, reason: str) -> None:
        """Count a request that was refused because the pods are full."""
        self._shed[reason] += 1

    @property
    def hedges(self) -> int:
        """Second pods that were asked."""
        return self._hedges.total() - self._hedges[REFUSED_BY_BUDGET]

    @property
    def refused(self) -> int:
        """Requests that were shed."""
        return self._shed.total()

    def families(self, fleet: Fleet, *, underway: int, queued: int) -> Iterator[Family]:
        """What Prometheus reads of this and of `fleet`."""
        yield "hedges_total", "counter", "Second pods asked beside the first.", _by_reason(self._hedges)
        yield "shed_total", "counter", "Refused because the pods are full.", _by_reason(self._shed)
        ejections = {reason.value: count for reason, count in fleet.health.ejections.items()}
        yield "ejections_total", "counter", "Pods left alone for a while.", _by_reason(ejections)
        yield "ejected", "gauge", "Pods that are left alone now.", _single(len(fleet.health.outliers.ejected))
        panic = "Whether so many pods are ejected that all are used."
        yield "panic", "gauge", panic, _single(fleet.panic)
        yield "aperture", "gauge", "Pods that this gateway connects to, at most.", _single(fleet.aperture_size)
        yield "allowance", "gauge", "Sentences that may be at the pods.", _single(fleet.allowance)
        yield "underway", "gauge", "Sentences at the pods or between them.", _single(underway)
        yield "queued", "gauge", "Sentences that wait for room at the pods.", _single(queued)


def _by_reason(counts: Mapping[str, int]) -> list[tuple[Labels, float]]:
    return [((("reason", reason),), count) for reason, count in counts.items()]


def _single(value: float) -> list[tuple[Labels, float]]:
    return [((), float(value))]
