"""Hold trials until the capacity of a fleet is found, and certify it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from copydesk.loadtest.bounds import upper_bound
from copydesk.loadtest.certificate import Certificate, CurvePoint, Evidence, Interval
from copydesk.loadtest.ground import Ground, Scouted
from copydesk.loadtest.record import Record
from copydesk.loadtest.search import Found, Hopeless, Measure, Scope, next_step
from copydesk.loadtest.trial import Trial
from copydesk.loadtest.verdict import Judgement, Rules, Verdict, judge

START_SHARE = 0.25
"""Where to begin, as a share of what batches came to: below most answers, so that the curve gets its lower end."""
FLOOR_SHARE = 0.01
"""Where to give up: at a hundredth of what one user by himself makes, requests are as good as alone."""

OnStep = Callable[[Measure], None]
OnTrial = Callable[[Record, Trial, Judgement], None]


def scope_of(
    scouted: Scouted, *, limit: float, precision: float, processes: int, start: float | None = None
) -> Scope:
    """Say where to search, from what was learnt of the fleet."""
    alone = 1000.0 / scouted.alone_ms
    begin = start or START_SHARE * scouted.batch_rate
    return Scope(
        start=begin,
        floor=min(FLOOR_SHARE * alone, begin),
        limit=limit,
        precision=precision,
        processes=processes,
    )


async def examine(
    record: Record, ground: Ground, *, on_step: OnStep, on_trial: OnTrial
) -> tuple[Record, Found | Hopeless]:
    """Go on with a search until it ends. `on_trial` gets the record with each new trial, to keep it."""
    while True:
        step = next_step(record.trials, record.rules, record.scope)
        if not isinstance(step, Measure):
            return record, step
        on_step(step)
        trial = await ground.trial(step, f"{record.seed}:{len(record.trials)}")
        record = record.added(trial)
        on_trial(record, trial, judge(trial, record.rules))


def certify(record: Record, found: Found, made_at: float) -> Certificate:
    """Return the certificate of a search that ended well; `made_at` is in Unix seconds."""
    subject = record.subject
    return Certificate(
        model=subject.model,
        model_digest=subject.model_digest,
        config_digest=subject.config_digest,
        config=subject.config,
        hardware=subject.hardware,
        pods=subject.pods,
        url=subject.url,
        slo_ms=record.rules.slo_ms,
        miss_share=record.rules.slow_share,
        rate=found.trial.rate,
        concurrency=found.trial.concurrency,
        interval=Interval(found.low, found.high),
        bounded_by=found.bounded_by,
        curve=curve_of(record, found),
        evidence=evidence_of(record, found),
        made_at=made_at,
    )


def evidence_of(record: Record, found: Found) -> Evidence:
    """Return what the answer rests on: the trial that confirmed it, and all up to its rate that say anything."""
    rules, trial = record.rules, found.trial
    up_to = [
        one for one in record.trials if one.rate <= trial.rate and judge(one, rules).verdict is not Verdict.INVALID
    ]
    requests, faults = sum(one.arrivals for one in up_to), sum(one.shed + one.errors for one in up_to)
    return Evidence(
        requests=trial.arrivals,
        misses=trial.misses,
        miss_bound=upper_bound(trial.misses, trial.arrivals, rules.confidence),
        requests_up_to=requests,
        faults=faults,
        fault_bound=upper_bound(faults, requests, rules.confidence),
    )


def curve_of(record: Record, found: Found) -> tuple[CurvePoint, ...]:
    """Return latency against concurrency: the longest trial at each rate that the fleet kept up with.

    A trial that failed for its latency alone is in it, as what the fleet does a little past its objective. Trials
    with refusals, failures or a growing queue are not: they have no latency of their own, it grows with the trial.
    """
    longest: dict[float, Trial] = {}
    for trial in record.trials:
        kept = longest.get(trial.rate)
        if _kept_up(trial, record.rules) and (kept is None or trial.length >= kept.length):
            longest[trial.rate] = trial
    return _ascending(longest, found.trial)


def _kept_up(trial: Trial, rules: Rules) -> bool:
    patient = msgspec.structs.replace(rules, slow_share=1.0)
    slow = trial.misses == trial.arrivals  # then not even all may miss
    return not slow and judge(trial, patient).verdict is Verdict.PASSED


def _ascending(by_rate: Mapping[float, Trial], found: Trial) -> tuple[CurvePoint, ...]:
    """Drop what chance put out of order (with more requests a second, more are in flight), but not the answer."""
    in_place = [
        trial
        for rate, trial in by_rate.items()
        if rate != found.rate and (rate < found.rate) == (trial.concurrency < found.concurrency)
    ]
    points: list[CurvePoint] = []
    for trial in sorted([*in_place, found], key=lambda one: one.rate):
        if trial.p50_ms is None or trial.p99_ms is None:
            continue
        if points and trial.concurrency <= points[-1].concurrency:
            continue
        points.append(
            CurvePoint(rate=trial.rate, concurrency=trial.concurrency, p50_ms=trial.p50_ms, p99_ms=trial.p99_ms)
        )
    return tuple(points)
