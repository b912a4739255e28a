"""Whether a fleet holds a rate, from one trial: a pure judgement, with its reasons."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from copydesk.loadtest.bounds import surely_above, surely_below
from copydesk.loadtest.growth import growth_p_value
from copydesk.loadtest.tally import Tally
from copydesk.loadtest.trial import Trial


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """By what a trial is judged. The defaults are what a capacity certificate stands for.

    `slo_ms` is the latency that at most the share `slow_share` of requests may exceed, to be shown with
    `confidence`; errors and refusals are to stay below `error_share`, completions at or above `completion` of
    arrivals. The number in flight must not grow with a p-value below `growth_p`. A generator whose P99 of lateness
    reaches `late_ms`, or whose rate is not within `rate_tolerance` of the one wanted, says nothing of the fleet.
    """

    slo_ms: float = 1000.0
    slow_share: float = 0.01
    confidence: float = 0.95
    error_share: float = 1e-4
    completion: float = 0.99
    rate_tolerance: float = 0.01
    growth_p: float = 0.01
    late_ms: float = 5.0


class Verdict(enum.Enum):
    """What a trial shows.

    `UNDECIDED` is a trial that did not pass and yet is what a fleet that holds the rate may show by chance: a
    longer one tells. `INVALID` says nothing of the fleet, because requests were not sent when they were due.
    """

    PASSED = "passed"
    FAILED = "failed"
    UNDECIDED = "undecided"
    INVALID = "invalid"


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict and why, in words; no reasons where the trial passed."""

    verdict: Verdict
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Finding:
    """Something that keeps a trial from passing; `certain` if chance alone would hardly bring it about."""

    text: str
    certain: bool


_CHANCE = 20.0
"""A trend is certain once its p-value is so many times below the limit."""

HOPELESS = 5.0
"""A trial is ended once so many times as many have missed as may. One of a rate a little too high goes on to its
end: it tells how much too high, and has its place on the curve."""
_LATE_QUANTILE = 0.99


def least_arrivals(rules: Rules) -> int:
    """Return the fewest requests of which none may miss that show what `rules` want: 299 for 1 % with 95 %."""
    return math.floor(math.log(1.0 - rules.confidence) / math.log1p(-rules.slow_share)) + 1


def may_pass(tally: Tally, arrivals: int, rules: Rules) -> bool:
    """Say whether a trial of so many `arrivals` may still be worth its time, from what is known of it so far.

    It is not if too many have missed, whatever becomes of the others, or if so many were sent late that it will be
    invalid.
    """
    may_be_late = arrivals - math.ceil(_LATE_QUANTILE * arrivals)
    if tally.late > may_be_late:
        return False
    too_many = tally.missed > HOPELESS * rules.slow_share * arrivals
    return not (too_many and surely_above(rules.slow_share, tally.missed, arrivals, rules.confidence))


def judge(trial: Trial, rules: Rules) -> Judgement:
    """Judge a trial."""
    if reason := _invalid(trial, rules):
        return Judgement(Verdict.INVALID, (reason,))
    if trial.stopped:
        missed = f"{trial.misses} of the first {trial.arrivals} missed {rules.slo_ms:g} ms: stopped"
        return Judgement(Verdict.FAILED, (missed,))
    findings = list(_findings(trial, rules))
    if not findings:
        return Judgement(Verdict.PASSED)
    verdict = Verdict.FAILED if any(finding.certain for finding in findings) else Verdict.UNDECIDED
    return Judgement(verdict, tuple(finding.text for finding in findings))


def breaks_down(trial: Trial, rules: Rules) -> bool:
    """Say whether a valid trial shows for certain, by anything but latency, that a rate is too much."""
    patient = msgspec.structs.replace(rules, slow_share=1.0)
    return any(finding.certain for finding in _findings(trial, patient))


def _invalid(trial: Trial, rules: Rules) -> str:
    """Say why a trial shows nothing of the fleet, "" if it does."""
    if trial.arrivals == 0:
        return "no request was due"
    if trial.late_p99_ms >= rules.late_ms:
        return f"requests were sent late (P99 {trial.late_p99_ms:.1f} ms)"
    if trial.stopped:
        return ""  # a piece of a plan does not hold as many requests as its rate makes on average
    missing = abs(trial.sent_rate - trial.rate) * trial.seconds
    if missing > max(1.0, rules.rate_tolerance * trial.rate * trial.seconds):
        return f"{trial.sent_rate:.1f} a second were sent instead of {trial.rate:.1f}"
    return ""


def _findings(trial: Trial, rules: Rules) -> Iterator[_Finding]:
    if not surely_below(rules.slow_share, trial.misses, trial.arrivals, rules.confidence):
        text = f"{trial.misses} of {trial.arrivals} missed {rules.slo_ms:g} ms"
        certain = surely_above(rules.slow_share, trial.misses, trial.arrivals, rules.confidence)
        yield _Finding(text, certain)
    faults = trial.shed + trial.errors
    if faults >= rules.error_share * trial.arrivals and faults > 0:
        certain = surely_above(rules.error_share, faults, trial.arrivals, rules.confidence)
        yield _Finding(f"{trial.shed} refused and {trial.errors} failed of {trial.arrivals}", certain)
    p_value = growth_p_value(trial.in_flight)
    if p_value < rules.growth_p:
        grew = f"requests in flight grew from {trial.in_flight[0]:.1f} to {trial.in_flight[-1]:.1f}"
        yield _Finding(f"{grew} (p = {p_value:.1g})", p_value < rules.growth_p / _CHANCE)
    if trial.completed < rules.completion * trial.arrivals:
        yield _Finding(f"only {trial.completed / trial.arrivals:.1%} of requests were answered well", True)
