"""What a trial shows, from its samples."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from copydesk.loadtest import RequestFailedError, Sample
from copydesk.loadtest.trial import Trial, Window, weigh
from copydesk.loadtest.verdict import Rules, Verdict, judge

RULES = Rules()
WINDOW = Window(1.0, 11.0)


def steady(latency: float = 0.05, rate: float = 100.0) -> list[Sample]:
    """Evenly due from second 0 to 12, each answered after `latency`."""
    return [Sample(index / rate, index / rate, index / rate + latency) for index in range(int(12 * rate))]


def weighed(samples: list[Sample], rate: float = 100.0) -> Trial:
    return weigh(samples, WINDOW, rate=rate, slo_ms=1000.0, length=1, processes=1)


def changed(samples: list[Sample], count: int, failure: RequestFailedError | None, latency: float) -> list[Sample]:
    """The first `count` of the window fail like this, or take so long."""
    first = next(i for i, sample in enumerate(samples) if sample.planned >= WINDOW.begin)
    hit = [Sample(s.planned, s.sent, s.planned + latency, failure) for s in samples[first : first + count]]
    return [*samples[:first], *hit, *samples[first + count :]]


def test_only_what_is_due_in_the_window_counts_and_in_flight_is_rate_times_latency() -> None:
    trial = weighed(steady())
    assert (trial.arrivals, trial.completed, trial.misses) == (1000, 1000, 0)
    assert trial.sent_rate == pytest.approx(100.0)
    assert trial.concurrency == pytest.approx(5.0, rel=0.01)
    assert sum(trial.in_flight) / len(trial.in_flight) == pytest.approx(5.0, abs=1.0)
    assert trial.p50_ms == pytest.approx(50)
    assert trial.p99_ms == pytest.approx(50)
    assert judge(trial, RULES).verdict is Verdict.PASSED


@pytest.mark.parametrize(("slow", "verdict"), [(0, "passed"), (4, "passed"), (8, "undecided"), (40, "failed")])
def test_slow_answers_are_judged_by_what_they_show_with_confidence(slow: int, verdict: str) -> None:
    trial = weighed(changed(steady(), slow, None, 1.5))
    assert trial.slow == slow
    assert judge(trial, RULES).verdict is Verdict(verdict)


def test_one_failure_in_a_thousand_is_undecided_and_a_few_fail() -> None:
    broken = RequestFailedError("disconnected", "gone")
    one, few = (judge(weighed(changed(steady(), count, broken, 0.1)), RULES) for count in (1, 3))
    assert (one.verdict, few.verdict) == (Verdict.UNDECIDED, Verdict.FAILED)
    assert few.reasons == ("0 refused and 3 failed of 1000",)


def test_refusals_are_counted_apart_and_do_not_pass_for_speed() -> None:
    trial = weighed(changed(steady(), 30, RequestFailedError("http_429", "busy"), 0.001))
    assert (trial.shed, trial.errors, trial.failures) == (30, 0, {"http_429": 30})
    assert judge(trial, RULES).verdict is Verdict.FAILED


def test_a_queue_that_builds_up_fails_before_it_is_too_slow() -> None:
    growing = [Sample(s.planned, s.sent, s.planned + 0.05 * (1 + s.planned)) for s in steady()]
    judgement = judge(weighed(growing), RULES)
    assert judgement.verdict is Verdict.FAILED
    assert "grew" in judgement.reasons[0]


def test_a_late_generator_makes_a_trial_invalid_whatever_else_it_shows() -> None:
    late = [Sample(s.planned, s.planned + 0.006, s.planned + 3.0) for s in steady()]
    judgement = judge(weighed(late), RULES)
    assert judgement.verdict is Verdict.INVALID
    assert judgement.reasons == ("requests were sent late (P99 6.0 ms)",)


def test_a_rate_that_was_not_reached_does_not_pass() -> None:
    assert judge(weighed(steady(rate=98.0), rate=100.0), RULES).verdict is Verdict.FAILED


def test_a_trial_without_arrivals_says_nothing() -> None:
    assert judge(weighed([]), RULES).verdict is Verdict.INVALID


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 5000), st.data(), st.floats(0, 100), st.lists(st.floats(0, 1e6), min_size=40, max_size=40))
def test_judging_is_total_and_more_misses_never_help(
    arrivals: int, data: st.DataObject, late_ms: float, in_flight: list[float]
) -> None:
    order = [Verdict.PASSED, Verdict.UNDECIDED, Verdict.FAILED, Verdict.INVALID]
    fewer, more = sorted(data.draw(st.tuples(st.integers(0, arrivals), st.integers(0, arrivals))))
    trial = msgspec.structs.replace(
        weighed(steady()), arrivals=arrivals, completed=arrivals, slow=fewer, late_p99_ms=late_ms,
        in_flight=tuple(in_flight),
    )  # fmt: skip
    better, worse = judge(trial, RULES), judge(msgspec.structs.replace(trial, slow=more), RULES)
    assert order.index(better.verdict) <= order.index(worse.verdict)
    assert (better.verdict is Verdict.PASSED) == (not better.reasons)


def test_the_number_in_flight_counts_those_that_nobody_sent_yet() -> None:
    waiting = [Sample(1.0, 11.0, 12.0) for _ in range(7)]
    trial = weighed(waiting)
    assert trial.concurrency == pytest.approx(7.0)
    assert math.isclose(trial.late_p99_ms, 10_000.0)
