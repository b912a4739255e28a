"""What a trial shows, from its samples."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from copydesk.loadtest import RequestFailedError, Sample
from copydesk.loadtest.bounds import upper_bound
from copydesk.loadtest.tally import Tally
from copydesk.loadtest.trial import Trial, Window, weigh
from copydesk.loadtest.verdict import Rules, Verdict, judge, least_arrivals, may_pass

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


def test_a_rate_that_was_not_reached_says_nothing_of_the_fleet() -> None:
    judgement = judge(weighed(steady(rate=98.0), rate=100.0), RULES)
    assert judgement.verdict is Verdict.INVALID
    assert judgement.reasons == ("98.0 a second were sent instead of 100.0",)
    assert judge(weighed(steady(rate=99.5), rate=100.0), RULES).verdict is Verdict.PASSED


def test_one_request_more_or_less_does_not_spoil_a_short_trial() -> None:
    fifty = [Sample(index / 5, index / 5, index / 5 + 0.01) for index in range(60)]
    assert judge(weighed(fifty[:-1], rate=5.0), Rules(slow_share=0.1)).verdict is Verdict.PASSED


def test_it_takes_299_requests_for_one_percent_and_ten_times_as_many_for_a_tenth_of_it() -> None:
    assert least_arrivals(RULES) == 299
    assert least_arrivals(Rules(slow_share=0.001)) == 2995
    assert least_arrivals(Rules(slow_share=0.1)) == 29
    for share in (0.001, 0.01, 0.1):
        least = least_arrivals(Rules(slow_share=share))
        assert upper_bound(0, least) < share <= upper_bound(0, least - 1)


@pytest.mark.parametrize(
    ("tally", "going_on"),
    [
        (Tally(due=400, missed=0, late=0), True),
        (Tally(due=400, missed=50, late=0), True),  # too many, and yet worth its place on the curve
        (Tally(due=60, missed=51, late=0), False),
        (Tally(due=400, missed=0, late=10), True),
        (Tally(due=400, missed=0, late=11), False),
    ],
)
def test_a_trial_goes_on_unless_it_cannot_pass_any_more(tally: Tally, going_on: bool) -> None:
    assert may_pass(tally, 1000, RULES) is going_on


@settings(max_examples=80, deadline=None)
@given(st.integers(20, 3000), st.data(), st.sampled_from([0.001, 0.01, 0.1, 0.5]))
def test_what_is_given_up_would_not_have_passed_whatever_came(
    arrivals: int, data: st.DataObject, share: float
) -> None:
    rules = Rules(slow_share=share)
    missed, late = data.draw(st.tuples(st.integers(0, arrivals), st.integers(0, arrivals)))
    if may_pass(Tally(due=arrivals, missed=missed, late=late), arrivals, rules):
        return
    samples = [
        Sample(i * 0.01, i * 0.01 + (0.005001 if i < late else 0.0), i * 0.01 + (2.0 if i < missed else 0.1))
        for i in range(arrivals)
    ]
    window = Window(0.0, arrivals * 0.01)
    best = weigh(samples, window, rate=100.0, slo_ms=1000.0, length=1, processes=1)
    assert judge(best, rules).verdict in (Verdict.FAILED, Verdict.INVALID)


def test_a_trial_that_was_stopped_is_weighed_up_to_where_everything_is_known() -> None:
    cut = RequestFailedError("unfinished", "no answer when the run ended")
    # Good for a second of the window, then nothing is answered; ended at second 6, with an objective of 1 s.
    samples = [
        Sample(due, due, due + 0.05) if due < 2.0 else Sample(due, due, 6.0, cut)
        for due in (index / 100 for index in range(600))
    ]
    trial = weigh(samples, WINDOW, rate=100.0, slo_ms=1000.0, length=1, processes=1, until=5.0)
    assert (trial.arrivals, trial.completed, trial.slow, trial.errors) == (400, 100, 300, 0)
    assert (trial.seconds, trial.stopped) == (4.0, True)
    judgement = judge(trial, RULES)
    assert judgement.verdict is Verdict.FAILED
    assert judgement.reasons == ("300 of the first 400 missed 1000 ms: stopped",)


def test_a_trial_that_was_stopped_because_requests_were_late_is_invalid() -> None:
    late = [Sample(s.planned, s.planned + 0.02, s.planned + 0.05) for s in steady()]
    trial = weigh(late, WINDOW, rate=100.0, slo_ms=1000.0, length=1, processes=1, until=2.0)
    assert judge(trial, RULES).verdict is Verdict.INVALID


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
