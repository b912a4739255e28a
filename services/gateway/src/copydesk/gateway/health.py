"""How the pods do, judged again and again from what their requests have shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from copydesk.common.telemetry import get_logger
from copydesk.gateway.pod import Pod
from copydesk.routing import OutlierRules, Outliers, Quantiles, Reason, Verdicts

ENOUGH_ANSWERS = 100.0
"""Answers after which a P95 or P99 of the fleet is worth its name."""

FADE_SECONDS = 1.0
FADE = 0.9
"""Each second what was seen counts a tenth less: quantiles are those of about the last ten."""

_log = get_logger(__name__)


class Health:
    """Ejects pods and lets them back; knows what is usual in this fleet.

    `slow` is the P95 of the latencies of requests that are much of a length, and `usual` their median, in
    seconds, None while too few are known. `ejections` counts by reason.
    """

    def __init__(self, rules: OutlierRules) -> None:
        self._latencies = Quantiles()
        self.outliers = Outliers(rules)
        self.ejections: Counter[Reason] = Counter()
        self.slow: float | None = None
        self.usual: float | None = None
        self._p99_ms: float | None = None
        self._faded_at = 0.0

    def observe(self, milliseconds: float) -> None:
        """Take in how long an answer took that was of the usual length."""
        self._latencies.observe(milliseconds)

    def absorb(self, counts: Sequence[float]) -> None:
        """Take in such answers that were counted elsewhere, in the buckets of `Quantiles`."""
        self._latencies.absorb(counts)

    def ejected(self, pod: str) -> bool:
        """Whether a pod is left alone for now."""
        return pod in self.outliers.ejected

    def review(self, pods: Iterable[Pod], now: float, withheld: str = "") -> Verdicts:
        """Judge the pods; say what has changed. Those of the weights that are `withheld` are another version."""
        known = {pod.id: pod for pod in pods}
        if now - self._faded_at >= FADE_SECONDS:
            self._measure(now)
        verdicts = self.outliers.review([pod.conduct(now, withheld) for pod in known.values()], self._p99_ms, now)
        for name, reason in verdicts.ejected:
            self._on_ejected(known[name], reason, now)
        for name in verdicts.released:
            _log.info("pod_back", pod=name)
        return verdicts

    def _measure(self, now: float) -> None:
        self._faded_at = now
        latencies = self._latencies
        self._p99_ms = latencies.quantile(0.99, ENOUGH_ANSWERS)
        self.slow = _seconds(latencies.quantile(0.95, ENOUGH_ANSWERS))
        self.usual = _seconds(latencies.quantile(0.5))
        latencies.fade(FADE)

    def _on_ejected(self, pod: Pod, reason: Reason, now: float) -> None:
        self.ejections[reason] += 1
        ejection = self.outliers.ejected[pod.id]
        _log.warning("pod_ejected", pod=pod.id, reason=reason.value, seconds=round(ejection.until - now, 3))
        if reason is Reason.FAILURES:
            pod.ledger.failures = 0
        elif reason is Reason.LATENCY:
            pod.ledger.samples = 0


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000.0
