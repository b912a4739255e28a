"""Whether pods run what was certified, and what is taken for their capacity if nobody has certified anything."""

from __future__ import annotations

from collections.abc import Iterator

from copydesk.autoscaler.metrics import Metrics
from copydesk.autoscaler.pilot import Pilot
from copydesk.autoscaler.plan import CapacitySource, PlanError
from copydesk.common.telemetry import get_logger

_log = get_logger(__name__)


class Weights:
    """Compares certificates with what pods say that they run.

    At the start a certificate for other weights is refused. Later, when weights are rolled out under a running
    autoscaler, it is complained of, and scaling goes on: the slow loop corrects a target that is too high, and a
    fleet that nobody scales any more would be the greater harm.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._unfit: set[str] = set()
        self._assumed: dict[str, tuple[float, float]] = {}

    def require(self, pilot: Pilot, now: float) -> None:
        """Raise `PlanError` if no pod that is heard runs the certified weights."""
        for source in _unfit(pilot, now):
            run = ", ".join(sorted(pilot.observer.pods.digests(now)))
            raise PlanError(
                "CERTIFICATE",
                f"{source.certificate} was made for weights {source.digest}; pods of {pilot.plan.model} run {run}",
            )

    def look(self, pilot: Pilot, now: float) -> None:
        """Say in the log and in the metrics what has changed."""
        model = pilot.plan.model
        unfit = next(_unfit(pilot, now), None)
        if unfit is not None and model not in self._unfit:
            _log.error("certificate_mismatch", model=model, certificate=unfit.certificate, digest=unfit.digest)
        (self._unfit.discard if unfit is None else self._unfit.add)(model)
        self._metrics.certificate_fits(model, fits=unfit is None)
        self._look_at_assumed(pilot, now)

    def _look_at_assumed(self, pilot: Pilot, now: float) -> None:
        policy = pilot.policy(now)
        if not pilot.plan.live.source.assumed or policy is None:
            return
        pod = (policy.capacity.concurrency, policy.capacity.rate)
        if self._assumed.get(pilot.plan.model) != pod:
            self._assumed[pilot.plan.model] = pod
            _log.warning(
                "capacity_assumed",
                model=pilot.plan.model,
                concurrency=pod[0],
                rate=pod[1],
                hint="nobody has measured this; copydesk capacity makes a certificate",
            )


def _unfit(pilot: Pilot, now: float) -> Iterator[CapacitySource]:
    digests = pilot.observer.pods.digests(now)
    for each in (pilot.plan.live, pilot.plan.candidate):
        if each is not None and each.source.digest and digests and each.source.digest not in digests:
            yield each.source
