"""What the gateways of one model said last, from totals to rates.

Order is that of the sender: `(started_at, sequence)`. How late a report comes is judged by the same sender's
quickest one, so that neither clock needs to be right; one that comes seconds later than that was held up on its
way, and says nothing of now. Two such in a row with the same delay are no delay: the sender's clock was stepped.

A gateway that was never heard is not invented, and one that fell silent is not forgotten: `decide` judges its age.
Memory is bounded: with `MOST_GATEWAYS` names, a new one takes the place of one that has long been silent, or none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from copydesk.autoscaler.dropped import Dropped
from copydesk.autoscaler.latency import NOTHING, difference
from copydesk.autoscaler.observation import GatewayDemand
from copydesk.common.latency import BUCKETS, percentile_ms
from copydesk.common.messages import DemandReport, InvalidNameError, subject_token

MOST_GATEWAYS = 4096
LATE_S = 3.0
SAME_DELAY_S = 0.5
SILENCE_S = 10.0
"""After so long, a run that began earlier is believed: the clock of the gateway's machine was set back."""
FORGET_S = 60.0
"""A name that has been silent for so long may be given up for another, where there are too many; so long, too, a
run that has said good-bye is known again."""
LOOK_AGAIN_S = 1.0
"""Where there was no place, none is looked for in that time: who floods with names must not cost time as well."""
WINDOW_S = 3.0
"""Latencies and service times are those of this to twice this time: shorter than what the slow loop waits for."""
LARGEST = 1e9
LARGEST_TOTAL = 2**53
LONGEST_INTERVAL_S = 60.0
SHORTEST_S = 0.1
"""A good-bye may follow the last report at once; refusals are not taken to have come within less than this."""


@dataclass(slots=True)
class Tally:
    """What has become of requests since the observer began."""

    completed: int = 0
    failed: int = 0
    shed: int = 0
    counts: tuple[int, ...] = NOTHING

    def copy(self) -> Tally:
        """Return one that stays as it is."""
        return Tally(self.completed, self.failed, self.shed, self.counts)


@dataclass(frozen=True, slots=True)
class _Mark:
    """Totals of a report that later ones are compared with."""

    at: float
    counts: tuple[int, ...]
    at_pods_s: float


@dataclass(slots=True)
class _Gateway:
    """One run of a gateway: its last report, the quickest way that one took, and marks for windows."""

    report: DemandReport
    heard_at: float
    delay: float
    older: _Mark
    newer: _Mark
    demand: GatewayDemand
    begun_at: float
    late: float | None = None


@dataclass(slots=True)
class DemandRoster:
    """The gateways of one model."""

    tally: Tally = field(default_factory=Tally)
    _known: dict[str, _Gateway] = field(default_factory=dict)
    _gone: dict[str, tuple[float, float]] = field(default_factory=dict)
    _full_until: float = -math.inf

    def take(self, report: DemandReport, now: float) -> Dropped | None:
        """Take in a report that arrived at `now`; say why it was dropped, if it was."""
        if not _makes_sense(report):
            return Dropped.INVALID
        known = self._known.get(report.gateway)
        if self._is_old(report, known, now):
            return Dropped.TWICE if known is not None and _is_another(report, known, now) else Dropped.OLD
        if report.closing:
            self._part(report, known, now)
            return None
        if known is not None and known.report.started_at == report.started_at:
            if _is_late(known, now - report.sent_at):
                return Dropped.OLD
            self._go_on(known, report, now)
            return None
        if known is None and not self._has_room(now):
            return Dropped.TOO_MANY
        self._begin(report, now)
        return None

    def gateways(self) -> tuple[GatewayDemand, ...]:
        """Return the last word of each gateway that has not said good-bye."""
        return tuple(one.demand for one in self._known.values())

    def _is_old(self, report: DemandReport, known: _Gateway | None, now: float) -> bool:
        if known is None:
            started_at, at = self._gone.get(report.gateway, (-math.inf, -math.inf))
            return report.started_at <= started_at and now - at <= FORGET_S
        if report.started_at == known.report.started_at:
            return report.sequence <= known.report.sequence
        return report.started_at < known.report.started_at and now - known.heard_at <= SILENCE_S

    def _part(self, report: DemandReport, known: _Gateway | None, now: float) -> None:
        """Take leave of a gateway, with what it did since its last report."""
        if known is not None and known.report.started_at == report.started_at:
            self._count(report, known.report)
        self._known.pop(report.gateway, None)
        self._gone.pop(report.gateway, None)
        if len(self._gone) >= MOST_GATEWAYS:
            del self._gone[next(iter(self._gone))]
        self._gone[report.gateway] = (report.started_at, now)

    def _has_room(self, now: float) -> bool:
        if len(self._known) < MOST_GATEWAYS:
            return True
        if now < self._full_until:
            return False
        name, silent = min(self._known.items(), key=lambda item: item[1].heard_at)
        if now - silent.heard_at <= FORGET_S:
            self._full_until = now + LOOK_AGAIN_S
            return False
        del self._known[name]
        return True

    def _begin(self, report: DemandReport, now: float) -> None:
        """Meet a run. If it has just begun, all its totals are news; else they are of an unknown time."""
        self._gone.pop(report.gateway, None)
        mark = _Mark(now, report.latency.counts, report.latency.at_pods_s)
        shed = 0.0
        if 0.0 <= report.sent_at - report.started_at <= 2.0 * report.interval_s:
            shed = report.shed / max(SHORTEST_S, report.interval_s)
            self._count(report, None)
        demand = GatewayDemand(report.gateway, now, report.in_flight, report.queued, shed)
        self._known[report.gateway] = _Gateway(report, now, now - report.sent_at, mark, mark, demand, now)

    def _go_on(self, known: _Gateway, report: DemandReport, now: float) -> None:
        self._count(report, known.report)
        steps = report.sequence - known.report.sequence
        elapsed = report.interval_s if steps == 1 else max(report.interval_s, now - known.heard_at)
        shed = max(0, report.shed - known.report.shed) / max(SHORTEST_S, elapsed)
        if now - known.newer.at >= WINDOW_S:
            last = known.report.latency
            known.older, known.newer = known.newer, _Mark(known.heard_at, last.counts, last.at_pods_s)
        service_s, p99_ms = _window(report, known.older)
        answered = _answered(report, known.older, now)
        known.report, known.heard_at = report, now
        known.demand = GatewayDemand(
            report.gateway, now, report.in_flight, report.queued, shed, service_s, p99_ms, answered
        )

    def _count(self, report: DemandReport, before: DemandReport | None) -> None:
        tally = self.tally
        tally.completed += max(0, report.completed - (before.completed if before else 0))
        tally.failed += max(0, report.failed - (before.failed if before else 0))
        tally.shed += max(0, report.shed - (before.shed if before else 0))
        counts = difference(report.latency.counts, before.latency.counts if before else NOTHING)
        if counts is not None:
            tally.counts = tuple(map(int.__add__, tally.counts, counts))


def _is_late(known: _Gateway, delay: float) -> bool:
    """Say whether a report was held up; note how quick one can be."""
    if delay - known.delay <= LATE_S:
        known.delay, known.late = min(known.delay, delay), None
        return False
    if known.late is not None and abs(delay - known.late) <= SAME_DELAY_S:
        known.delay, known.late = delay, None
        return False
    known.late = delay
    return True


def _is_another(report: DemandReport, known: _Gateway, now: float) -> bool:
    """Say whether an earlier run speaks on long after a later one has begun: then these are two gateways."""
    speaks_now = abs(now - report.sent_at - known.delay) <= LATE_S
    earlier = report.started_at < known.report.started_at
    return earlier and speaks_now and now - known.begun_at > SILENCE_S


def _window(report: DemandReport, mark: _Mark) -> tuple[float | None, float | None]:
    """Return the mean time at pods and the 99th percentile of latency since `mark`; None: not known."""
    counts = difference(report.latency.counts, mark.counts)
    spent = report.latency.at_pods_s - mark.at_pods_s
    if counts is None or not sum(counts):
        return None, None
    service_s = spent / sum(counts)
    return (service_s if 0.0 < service_s < LARGEST else None), percentile_ms(counts, 0.99)


def _answered(report: DemandReport, mark: _Mark, now: float) -> float | None:
    """Return the answers a second since `mark`, None if not known."""
    counts = difference(report.latency.counts, mark.counts)
    return None if counts is None else sum(counts) / max(SHORTEST_S, now - mark.at)


def _makes_sense(report: DemandReport) -> bool:
    try:
        subject_token(report.gateway)
    except InvalidNameError:
        return False
    latency = report.latency
    totals = (report.sequence, report.completed, report.failed, report.shed, *latency.counts)
    amounts = (report.in_flight, report.queued, latency.total_s, latency.at_pods_s)
    return (
        len(latency.counts) == BUCKETS
        and all(0 <= total < LARGEST_TOTAL for total in totals)
        and all(0.0 <= amount < LARGEST for amount in amounts[:2])
        and all(0.0 <= amount < math.inf for amount in amounts[2:])
        and 0.0 <= report.interval_s <= LONGEST_INTERVAL_S
        and abs(report.sent_at) < LARGEST_TOTAL
        and abs(report.started_at) < LARGEST_TOTAL
    )
