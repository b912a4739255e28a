"""Which rate to try next, and when to stop: a pure function of the trials so far.

Double until a rate fails, then bisect between the highest rate that passed and the lowest above it that failed, in
log space, until they are 3 % apart; then try both ends once more, for longer. Because everything follows from the
trials, a search that was interrupted goes on from them as if nothing had happened.

Chance is part of it. A trial that is undecided is repeated at twice the length, up to four times; the longest
trial at a rate is its word, the last of them if there are several, so that a later one can take back what an
earlier one said. An answer has passed twice, once in a trial that was held to confirm it. The trials at a rate are
few, and new rates keep a distance from all before them, so that every search ends.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from copydesk.loadtest.interval import interval
from copydesk.loadtest.trial import Trial
from copydesk.loadtest.verdict import Judgement, Rules, Verdict, judge

PLAIN, CONFIRMING, LONGEST = 1, 2, 4
"""Lengths of trials, in plain ones."""
CONFIRMED = 2
"""So often an answer has passed."""

INVALID_ATTEMPTS = 3
"""Trials with as many processes as there may be before a rate counts as one that cannot be sent; the lowest of
these is tried once more at the end, since what disturbed the generator may be over."""

UNREACHABLE_RATES = 3
"""Rates, each half the one before, that cannot be sent before it is clear that slower is not the remedy."""


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """Where to search: from `start`, not below `floor` nor above `limit`, all in requests a second.

    Ends once passing and failing rates are at most `precision` apart, as a share. `processes` is how many may
    send. Once the answer is confirmed, rates near each of `fractions` of it are tried for the curve.
    """

    start: float
    floor: float
    limit: float = 1_000_000.0
    precision: float = 0.03
    processes: int = 2
    fractions: tuple[float, ...] = (0.2, 0.4, 0.6, 0.8, 0.9)


class Purpose(enum.Enum):
    """What a trial is for."""

    DOUBLE = "doubling"
    HALVE = "halving"
    BISECT = "bisecting"
    REPEAT = "repeating, for it was undecided"
    RESEND = "repeating, for requests were late"
    CONFIRM = "confirming"
    CONFIRM_LIMIT = "confirming that more is too much"
    ONCE_MORE = "trying again what could not be sent in time"
    CURVE = "curve"


@dataclass(frozen=True, slots=True)
class Measure:
    """The next step: a trial at `rate`, `length` plain ones long, sent by `processes`."""

    rate: float
    length: int
    processes: int
    purpose: Purpose


@dataclass(frozen=True, slots=True)
class Found:
    """The end: `trial` is the one that confirmed the highest rate; see `Certificate` for `bounded_by`."""

    trial: Trial
    low: float
    high: float | None
    bounded_by: str


@dataclass(frozen=True, slots=True)
class Hopeless:
    """The end: no rate was found that holds, or that can be sent; `trial` is the last at the lowest, and why."""

    trial: Trial
    reasons: tuple[str, ...]


class _Word(enum.Enum):
    PASSED = "passed"
    FAILED = "failed"
    UNREACHABLE = "unreachable"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class _Rate:
    """What is known of one rate, from all the trials at it: of `passes`, one may have been luck."""

    word: _Word
    length: int
    passes: int
    spent: int
    last: Trial
    judgement: Judgement


def next_step(trials: Sequence[Trial], rules: Rules, scope: Scope) -> Measure | Found | Hopeless:
    """Return what to do next, after `trials`."""
    if not trials:
        return Measure(_tidy(min(scope.start, scope.limit)), PLAIN, 1, Purpose.DOUBLE)
    rates = known_rates(trials, rules, scope)
    processes = max(trial.processes for trial in trials)
    pending = rates[trials[-1].rate]
    if pending.word is _Word.OPEN:
        return _again(pending, processes, scope)
    passed = [rate for rate, known in rates.items() if known.word is _Word.PASSED]
    if not passed:
        return _lower(rates, processes, scope)
    low = max(passed)
    above = [rate for rate, known in rates.items() if rate > low and known.word is not _Word.PASSED]
    if not above and low < scope.limit:
        return Measure(_tidy(min(2.0 * low, scope.limit)), PLAIN, processes, Purpose.DOUBLE)
    if above and min(above) > low * (1.0 + scope.precision):
        return Measure(_tidy(math.sqrt(low * min(above))), PLAIN, processes, Purpose.BISECT)
    high = min(above, default=None)
    return _confirm(low, high, rates, processes, scope) or _found(trials, rates, low, high, rules)


def known_rates(trials: Sequence[Trial], rules: Rules, scope: Scope) -> Mapping[float, _Rate]:
    """Return what is known of each rate that was tried."""
    by_rate: dict[float, list[Trial]] = {}
    for trial in trials:
        by_rate.setdefault(trial.rate, []).append(trial)
    return {rate: _known(some, rules, scope) for rate, some in by_rate.items()}


def _known(trials: Sequence[Trial], rules: Rules, scope: Scope) -> _Rate:
    """Sum up the trials at one rate: the last of the longest that are valid has the word."""
    judged = [(trial, judge(trial, rules)) for trial in trials]
    valid = [(trial, found) for trial, found in judged if found.verdict is not Verdict.INVALID]
    passes = sum(found.verdict is Verdict.PASSED for _, found in valid)
    spent = sum(found.verdict is Verdict.INVALID and t.processes >= scope.processes for t, found in judged)
    if judged[-1][1].verdict is Verdict.INVALID:
        word = _Word.UNREACHABLE if spent >= INVALID_ATTEMPTS else _Word.OPEN
        return _Rate(word, judged[-1][0].length, passes, spent, *judged[-1])
    longest = max(trial.length for trial, _ in valid)
    trial, found = next((t, f) for t, f in reversed(valid) if t.length == longest)
    words = {Verdict.PASSED: _Word.PASSED, Verdict.FAILED: _Word.FAILED}
    open_or_failed = _Word.OPEN if longest < LONGEST else _Word.FAILED
    return _Rate(words.get(found.verdict, open_or_failed), longest, passes, spent, trial, found)


def _again(pending: _Rate, processes: int, scope: Scope) -> Measure:
    last = pending.last
    if pending.judgement.verdict is Verdict.INVALID:
        more = min(2 * last.processes, scope.processes)
        return Measure(last.rate, last.length, max(more, processes), Purpose.RESEND)
    return Measure(last.rate, 2 * last.length, processes, Purpose.REPEAT)


def _lower(rates: Mapping[float, _Rate], processes: int, scope: Scope) -> Measure | Hopeless:
    lowest = min(rates)
    unreachable = sum(known.word is _Word.UNREACHABLE for known in rates.values())
    if lowest <= scope.floor or unreachable >= UNREACHABLE_RATES:
        return Hopeless(rates[lowest].last, rates[lowest].judgement.reasons)
    return Measure(max(_tidy(lowest / 2.0), scope.floor), PLAIN, processes, Purpose.HALVE)


def _confirm(
    low: float, high: float | None, rates: Mapping[float, _Rate], processes: int, scope: Scope
) -> Measure | None:
    if rates[low].passes < CONFIRMED:
        return Measure(low, max(CONFIRMING, rates[low].length), processes, Purpose.CONFIRM)
    if high is not None and rates[high].length < CONFIRMING and rates[high].word is _Word.FAILED:
        return Measure(high, CONFIRMING, processes, Purpose.CONFIRM_LIMIT)
    if high is not None and rates[high].word is _Word.UNREACHABLE and rates[high].spent == INVALID_ATTEMPTS:
        return Measure(high, rates[high].last.length, processes, Purpose.ONCE_MORE)
    for fraction in sorted(scope.fractions):
        wanted = fraction * low
        if wanted >= scope.floor and not any(0.87 * wanted < rate < 1.15 * wanted for rate in rates):
            return Measure(_tidy(wanted), PLAIN, processes, Purpose.CURVE)
    return None


def _found(
    trials: Sequence[Trial], rates: Mapping[float, _Rate], low: float, high: float | None, rules: Rules
) -> Found:
    bounded_by = "fleet"
    if high is None:
        bounded_by = "limit"
    elif rates[high].word is _Word.UNREACHABLE:
        bounded_by = "generator"
    return Found(rates[low].last, *interval(trials, low, rules), bounded_by)


def _tidy(rate: float) -> float:
    """Round to five digits: rates are read by people, and compared with those of a file."""
    return float(f"{rate:.5g}")
