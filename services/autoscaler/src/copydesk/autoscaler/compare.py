"""Where a candidate and the live configuration differed, and what then happened, from the decision log.

What happened is what happened to the live fleet: its latency, its refusals. Of the candidate's fleet nobody
knows these. What is known is the work that there was and the pods that it would have had for it (`Virtual`). So
where the candidate had more pods, violations are those that it might have prevented. Where it had fewer, the
seconds count in which its pods would have had more than they are certified for ("short"): in these it would have
missed the objective, and in the others its fewer pods would have done.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import msgspec

from copydesk.autoscaler.log_entry import DRY, LIVE, Brief
from copydesk.autoscaler.observer import Outcome

LONGEST_GAP_S = 10.0
"""Between two lines; after more nobody decided, and nothing is said of that time."""


class Verdict(enum.StrEnum):
    """What a stretch says of the candidate."""

    MIGHT_HELP = "might_have_helped"
    NO_USE = "no_use_seen"
    TOO_FEW = "too_few"
    SAVED = "saved"


class Stretch(msgspec.Struct, frozen=True, kw_only=True):
    """A time in which the candidate had more, or fewer, pods than the live fleet; moments in Unix seconds.

    `live` and `candidate` are the least and the most pods of each; `pods` the largest difference (above 0: more at
    the candidate). `pod_hours` are the candidate's beyond the live ones. `violation_seconds` (P99 above the
    objective, or refusals), `p99_ms` (the worst), `shed` and `failed` are what the live fleet saw meanwhile;
    `short_seconds` those in which the candidate's pods would have had too much.
    """

    start: float
    end: float
    live: tuple[int, int]
    candidate: tuple[int, int]
    pods: int
    pod_hours: float
    violation_seconds: float
    p99_ms: float | None
    shed: int
    failed: int
    short_seconds: float
    verdict: Verdict


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """One candidate of one model beside the live configuration, over the `seconds` in which both decided."""

    model: str
    candidate: str
    start: float
    end: float
    seconds: float
    differed_seconds: float
    live_pod_hours: float
    candidate_pod_hours: float
    live_moves: int
    candidate_moves: int
    violation_seconds: float
    short_seconds: float
    p99_ms: float | None
    shed: int
    failed: int
    stretches: tuple[Stretch, ...]


class _Step(msgspec.Struct, frozen=True):
    """From one pair of decisions to the next: for how long they held, and what then happened."""

    live: Brief
    candidate: Brief
    end: float
    after: Outcome

    @property
    def seconds(self) -> float:
        return self.end - self.live.time

    @property
    def difference(self) -> int:
        return self.candidate.replicas - self.live.replicas

    @property
    def violation_seconds(self) -> float:
        slow = self.after.p99_ms is not None and 0.0 < self.live.slo_ms < self.after.p99_ms
        return self.seconds if slow or self.after.shed > 0 else 0.0

    @property
    def short_seconds(self) -> float:
        virtual = self.candidate.virtual
        return self.seconds if virtual is not None and virtual.work > virtual.ready else 0.0


def compare(entries: Iterable[Brief]) -> tuple[Comparison, ...]:
    """Return a comparison for each candidate, by model and name; `entries` are in the order of their times."""
    pairs: dict[tuple[str, str], list[tuple[Brief, Brief]]] = {}
    live: dict[str, Brief] = {}
    for entry in entries:
        if entry.policy in (LIVE, DRY):
            live[entry.model] = entry
            continue
        beside = live.get(entry.model)
        if beside is not None and (beside.epoch, beside.sequence) == (entry.epoch, entry.sequence):
            pairs.setdefault((entry.model, entry.policy), []).append((beside, entry))
    return tuple(_compared(model, name, found) for (model, name), found in sorted(pairs.items()))


def _compared(model: str, name: str, pairs: Sequence[tuple[Brief, Brief]]) -> Comparison:
    steps = list(_steps(pairs))
    return Comparison(
        model=model,
        candidate=name,
        start=pairs[0][0].time,
        end=pairs[-1][0].time,
        seconds=sum(step.seconds for step in steps),
        differed_seconds=sum(step.seconds for step in steps if step.difference),
        live_pod_hours=_pod_hours(step.live.replicas * step.seconds for step in steps),
        candidate_pod_hours=_pod_hours(step.candidate.replicas * step.seconds for step in steps),
        live_moves=sum(live.replicas != live.size for live, _ in pairs),
        candidate_moves=sum(one.replicas != one.size for _, one in pairs),
        violation_seconds=sum(step.violation_seconds for step in steps),
        short_seconds=sum(step.short_seconds for step in steps),
        p99_ms=_worst(steps),
        shed=sum(step.after.shed for step in steps),
        failed=sum(step.after.failed for step in steps),
        stretches=tuple(_stretches(steps)),
    )


def _steps(pairs: Sequence[tuple[Brief, Brief]]) -> Iterator[_Step]:
    for (live, candidate), (after, _) in pairwise(pairs):
        same_term = after.epoch == live.epoch
        if same_term and 0.0 < after.time - live.time <= LONGEST_GAP_S:
            yield _Step(live, candidate, after.time, after.observed)


def _stretches(steps: Sequence[_Step]) -> Iterator[Stretch]:
    held: list[_Step] = []
    for step in steps:
        if held and (_sign(step) != _sign(held[-1]) or step.live.time != held[-1].end):
            yield from _stretch(held)
            held = []
        held.append(step)
    yield from _stretch(held)


def _stretch(steps: Sequence[_Step]) -> Iterator[Stretch]:
    if not steps or not steps[0].difference:
        return
    violation_seconds = sum(step.violation_seconds for step in steps)
    short_seconds = sum(step.short_seconds for step in steps)
    more = steps[0].difference > 0
    yield Stretch(
        start=steps[0].live.time,
        end=steps[-1].end,
        live=_range(step.live.replicas for step in steps),
        candidate=_range(step.candidate.replicas for step in steps),
        pods=max((step.difference for step in steps), key=abs),
        pod_hours=_pod_hours(step.difference * step.seconds for step in steps),
        violation_seconds=violation_seconds,
        p99_ms=_worst(steps),
        shed=sum(step.after.shed for step in steps),
        failed=sum(step.after.failed for step in steps),
        short_seconds=short_seconds,
        verdict=_verdict(more=more, violated=violation_seconds > 0.0, short=short_seconds > 0.0),
    )


def _verdict(*, more: bool, violated: bool, short: bool) -> Verdict:
    if more:
        return Verdict.MIGHT_HELP if violated else Verdict.NO_USE
    return Verdict.TOO_FEW if short else Verdict.SAVED


def _sign(step: _Step) -> int:
    return (step.difference > 0) - (step.difference < 0)


def _range(values: Iterable[int]) -> tuple[int, int]:
    found = list(values)
    return min(found), max(found)


def _pod_hours(pod_seconds: Iterable[float]) -> float:
    return sum(pod_seconds) / 3600.0


def _worst(steps: Sequence[_Step]) -> float | None:
    return max((step.after.p99_ms for step in steps if step.after.p99_ms is not None), default=None)
