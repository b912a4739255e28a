"""Whether pods run the weights that they should: those of the profile by which this fleet was measured."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from copydesk.common.messages import LoadReport
from copydesk.common.telemetry import get_logger
from copydesk.gateway.metrics import Family

MOST_KNOWN = 10_000
"""Pods of which the digest is kept: more than there are in any fleet, so that made-up names fill nothing."""

_log = get_logger(__name__)


class Weights:
    """Compares what pods report with the digest that is `expected`; "" expects none, and compares nothing.

    Another digest is no reason to leave a pod alone: the profile may be the one that is behind, and an answer from
    other weights is better than none. It is told, once for each pod and digest.
    """

    def __init__(self, model: str, expected: str) -> None:
        self._model = model
        self._expected = expected
        self._others: dict[str, str] = {}

    def hear(self, report: LoadReport) -> None:
        """Take in what a pod says of itself."""
        if not self._expected or not report.digest:
            return
        if report.digest == self._expected:
            if self._others.pop(report.pod, None) is not None:
                _log.info("pod_runs_expected_weights", pod=report.pod, model=self._model, digest=report.digest)
            return
        if self._others.get(report.pod) == report.digest:
            return
        if report.pod in self._others or len(self._others) < MOST_KNOWN:
            self._others[report.pod] = report.digest
            _log.warning(
                "pod_runs_other_weights",
                pod=report.pod,
                model=self._model,
                digest=report.digest,
                expected=self._expected,
            )

    def families(self, pods: Collection[str]) -> Iterator[Family]:
        """What Prometheus reads; `pods` are those that there are."""
        if self._expected:
            other = sum(pod in pods for pod in self._others)
            text = "Pods that report other weights than those of the profile."
            yield "pods_of_other_weights", "gauge", text, [((), float(other))]
            info = (("model", self._model), ("digest", self._expected))
            yield "expected_weights", "gauge", "The digest that pods should report; always 1.", [(info, 1.0)]
