"""What gateways report of a rollout, put together: totals since it began, whoever restarts or falls silent."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from copydesk.common.latency import BUCKETS
from copydesk.common.messages import (
    LATENCY_BOUNDS_MS,
    ComparedTotals,
    RolloutReport,
    VersionTotals,
)
from copydesk.routing import Agreement, Evidence, Service

SILENT_SECONDS = 5.0
"""Five reports: whoever has missed so many is waited for."""

FORGET_SECONDS = 60.0
"""A gateway that is silent for so long has gone, if others have not; what it counted stays."""


@dataclass(frozen=True, slots=True)
class Side:
    """What one version did since the rollout began."""

    requests: int = 0
    failures: int = 0
    refused: int = 0
    counts: tuple[int, ...] = (0,) * BUCKETS

    @classmethod
    def of(cls, totals: VersionTotals) -> Side:
        """Return what a report says; raises `ValueError` for counts by other bounds than ours."""
        counts = totals.counts or (0,) * BUCKETS
        if len(counts) != BUCKETS:
            raise ValueError(f"{len(counts)} buckets where {BUCKETS} are expected")
        return cls(totals.requests, totals.failures, totals.refused, counts)

    def plus(self, other: Side, sign: int = 1) -> Side:
        """Return both together, or with `sign` -1 what is more here; a total that shrank counts as none."""
        return Side(
            max(0, self.requests + sign * other.requests),
            max(0, self.failures + sign * other.failures),
            max(0, self.refused + sign * other.refused),
            tuple(max(0, one + sign * two) for one, two in zip(self.counts, other.counts, strict=True)),
        )

    def service(self, slo_ms: float) -> Service:
        """Return it as the decision sees it."""
        return Service(self.requests, slower(self.counts, slo_ms), self.failures, self.refused)


@dataclass(slots=True)
class _Run:
    """One run of a gateway: its first report, unless it began later than the rollout, and its last."""

    base: tuple[Side, Side]
    last: RolloutReport
    heard_at: float

    def sides(self) -> tuple[Side, Side]:
        """Return what both versions did there."""
        return (
            Side.of(self.last.baseline).plus(self.base[0], -1),
            Side.of(self.last.candidate).plus(self.base[1], -1),
        )


class Gathered:
    """Reports of one rollout; `began` is its begin in Unix seconds, `now` in seconds of a monotonic clock."""

    def __init__(self, rollout: str, epoch: int, *, began: float) -> None:
        self._rollout = rollout
        self._epoch = epoch
        self._began = began
        self._runs: dict[str, _Run] = {}
        self._elsewhere: dict[str, float] = {}
        self._past = (Side(), Side())
        self._past_compared = ComparedTotals()

    def hear(self, report: RolloutReport, now: float) -> None:
        """Take in a report; raises `ValueError` for one that cannot be read."""
        if report.rollout != self._rollout:
            self._elsewhere[report.gateway] = now
            return
        self._elsewhere.pop(report.gateway, None)
        sides = Side.of(report.baseline), Side.of(report.candidate)
        known = self._runs.get(report.gateway)
        if known is not None and known.last.started_at == report.started_at:
            if report.sequence > known.last.sequence:
                known.last, known.heard_at = report, now
            return
        if known is not None:
            if report.started_at < known.last.started_at:
                return
            self._settle(report.gateway)
        base = (Side(), Side()) if report.started_at > self._began else sides
        self._runs[report.gateway] = _Run(base, report, now)

    def sides(self) -> tuple[Side, Side]:
        """Return what baseline and candidate did."""
        baseline, candidate = self._past
        for run in self._runs.values():
            old, new = run.sides()
            baseline, candidate = baseline.plus(old), candidate.plus(new)
        return baseline, candidate

    def compared(self) -> ComparedTotals:
        """Return what came of the copies."""
        total = self._past_compared
        for run in self._runs.values():
            total = _both(total, run.last.compared)
        return total

    def follow(self, stage: str) -> bool:
        """Whether every gateway that is heard says that this stage of ours holds there."""
        return bool(self._runs) and all(
            run.last.stage == stage and run.last.epoch == self._epoch and run.last.in_force
            for run in self._runs.values()
        )

    def evidence(self, slo_ms: float, *, baselines: int, candidates: int, now: float) -> Evidence:
        """Return what there is to decide by."""
        self._forget(now)
        baseline, candidate = self.sides()
        compared = self.compared()
        silent = tuple(sorted(name for name, run in self._runs.items() if now - run.heard_at > SILENT_SECONDS))
        heard = [(name, run) for name, run in self._runs.items() if name not in silent]
        unheeded = {name for name, run in heard if run.last.epoch != self._epoch or not run.last.in_force}
        unheeded |= {name for name, at in self._elsewhere.items() if now - at <= SILENT_SECONDS}
        return Evidence(
            baseline=baseline.service(slo_ms),
            candidate=candidate.service(slo_ms),
            agreement=Agreement(compared.compared, compared.same, compared.failed + compared.timeouts),
            gateways=len(heard),
            silent=silent,
            unheeded=tuple(sorted(unheeded)),
            candidates=candidates,
            baselines=baselines,
        )

    def _forget(self, now: float) -> None:
        if all(now - run.heard_at > SILENT_SECONDS for run in self._runs.values()):
            return
        for name, run in tuple(self._runs.items()):
            if now - run.heard_at > FORGET_SECONDS:
                self._settle(name)

    def _settle(self, name: str) -> None:
        run = self._runs.pop(name)
        old, new = run.sides()
        self._past = self._past[0].plus(old), self._past[1].plus(new)
        self._past_compared = _both(self._past_compared, run.last.compared)


def slower(counts: Sequence[int], slo_ms: float) -> int:
    """Return how many took longer than `slo_ms`; within a bucket they are taken to lie evenly."""
    index = bisect_left(LATENCY_BOUNDS_MS, slo_ms)
    above = sum(counts[index + 1 :])
    if index == len(LATENCY_BOUNDS_MS):
        return above
    low = LATENCY_BOUNDS_MS[index - 1] if index else 0
    high = LATENCY_BOUNDS_MS[index]
    return above + round(counts[index] * (high - slo_ms) / (high - low))


def _both(one: ComparedTotals, other: ComparedTotals) -> ComparedTotals:
    names = ComparedTotals.__struct_fields__
    return ComparedTotals(**{name: getattr(one, name) + getattr(other, name) for name in names})
