"""From messages to observations of one model; no I/O, and every moment is passed in (`SteadyClock`)."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from copydesk.autoscaler.demand_roster import DemandRoster, Tally
from copydesk.autoscaler.dropped import Dropped
from copydesk.autoscaler.latency import difference
from copydesk.autoscaler.observation import Observation
from copydesk.autoscaler.pod_roster import PodRoster
from copydesk.common.latency import percentile_ms
from copydesk.common.messages import DemandReport, EndpointsSnapshot, LoadReport


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of requests in the `seconds` since the last decision; `p99_ms` None: none was answered."""

    seconds: float = 0.0
    completed: int = 0
    failed: int = 0
    shed: int = 0
    p99_ms: float | None = None


@dataclass(slots=True)
class _Account:
    at: float
    tally: Tally


class Observer:
    """What is known of the fleet of `model`."""

    def __init__(self, model: str, cold_start_s: float) -> None:
        self.model = model
        self._cold_start_s = cold_start_s
        self._gateways = DemandRoster()
        self._account: _Account | None = None
        self.pods = PodRoster()

    def on_demand(self, report: DemandReport, now: float) -> Dropped | None:
        """Take in what a gateway says; say why it was dropped, if it was."""
        return self._gateways.take(report, now) if report.model == self.model else Dropped.MODEL

    def on_snapshot(self, snapshot: EndpointsSnapshot, now: float) -> Dropped | None:
        """Take in what discovery says; say why it was dropped, if it was."""
        return self.pods.take_snapshot(snapshot, now) if snapshot.model == self.model else Dropped.MODEL

    def on_load(self, report: LoadReport, now: float) -> Dropped | None:
        """Take in what a pod says; say why it was dropped, if it was."""
        return self.pods.take_load(report, now) if report.model == self.model else Dropped.MODEL

    def observe(self, size: int, now: float) -> Observation:
        """Return what is known at `now`, where `size` pods are asked for."""
        return Observation(
            size,
            self._gateways.gateways(),
            self.pods.pods(size, self._cold_start_s, now),
            members_stale=self.pods.blind(now),
        )

    def outcome(self, now: float) -> Outcome:
        """Return what became of requests since the last call."""
        before, tally = self._account, self._gateways.tally.copy()
        self._account = _Account(now, tally)
        if before is None:
            return Outcome()
        counts = difference(tally.counts, before.tally.counts)
        return Outcome(
            seconds=max(0.0, now - before.at),
            completed=tally.completed - before.tally.completed,
            failed=tally.failed - before.tally.failed,
            shed=tally.shed - before.tally.shed,
            p99_ms=percentile_ms(counts, 0.99) if counts else None,
        )
