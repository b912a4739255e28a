"""The reports of one gateway's demand, one after the other."""

from __future__ import annotations

from copydesk.common.messages import DemandReport, Latency
from copydesk.gateway.demand import Demand, Spent


class Reporter:
    """Makes a report of what there was since the one before, whenever it is asked to.

    `now`, here and below, is in seconds of the clock that `demand` counts by, `started_at` and `sent_at` are in
    Unix seconds. Nothing depends on how often reports are made: a mean is of the time that has really passed.
    """

    def __init__(self, demand: Demand, *, model: str, gateway: str, started_at: float, now: float) -> None:
        self._demand = demand
        self._model = model
        self._gateway = gateway
        self._started_at = started_at
        self._at = now
        self._spent = Spent(0.0, 0.0)
        self._means = Spent(0.0, 0.0)
        self._sequence = 0

    def report(self, now: float, sent_at: float, *, closing: bool = False) -> DemandReport:
        """Return the next report; `closing` says that it is the last one.

        If no time has passed, the means are those of the report before.
        """
        demand, elapsed = self._demand, now - self._at
        spent = demand.spent(now)
        if elapsed > 0:
            self._means = Spent(
                max(0.0, (spent.at_pods - self._spent.at_pods) / elapsed),
                max(0.0, (spent.queued - self._spent.queued) / elapsed),
            )
            self._at, self._spent = now, spent
        self._sequence += 1
        return DemandReport(
            model=self._model,
            gateway=self._gateway,
            sequence=self._sequence,
            sent_at=sent_at,
            started_at=self._started_at,
            interval_s=max(0.0, elapsed),
            in_flight=self._means.at_pods,
            queued=self._means.queued,
            completed=demand.completed,
            failed=demand.failed,
            shed=demand.shed,
            latency=Latency(
                counts=tuple(demand.latency.counts),
                total_s=demand.latency.total,
                at_pods_s=demand.at_pods_s,
            ),
            closing=closing,
        )
