"""What a run's requests come to: availability, answers that are none, the longest outage, the bars."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.chaos.growth import Growth
from copydesk.chaos.outcome import Outcome, longest_outage, sum_up
from copydesk.chaos.verdict import Bars, End, judge
from copydesk.loadtest import RequestFailedError, Sample


def sample(at: float, seconds: float = 0.1, kind: str = "") -> Sample:
    return Sample(at, at, at + seconds, RequestFailedError(kind, "it did") if kind else None)


SAMPLES = st.lists(
    st.builds(
        sample,
        st.floats(0, 100),
        st.floats(0, 3),
        st.sampled_from(["", "", "", "http_429", "http_503", "other_id", "unfinished", "connect"]),
    )
).map(lambda found: sorted(found, key=lambda one: one.planned))


@given(samples=SAMPLES)
def test_every_request_is_counted_once(samples: list[Sample]) -> None:
    found = sum_up(samples, 1.0, 0)
    parts = (found.good, found.late, found.wrong, found.refused, found.unanswered, found.failed)
    assert sum(parts) == found.offered == len(samples)
    assert found.good == sum(one.failure is None and one.latency <= 1.0 for one in samples)


@given(samples=SAMPLES)
def test_an_outage_is_as_long_as_the_longest_row_of_bad_answers(samples: list[Sample]) -> None:
    found, began = longest_outage(samples, 1.0)
    good = [one.failure is None and one.latency <= 1.0 for one in samples]
    if all(good):
        assert found == 0.0
    if found and good[-1]:
        inside = [ok for one, ok in zip(samples, good, strict=True) if began < one.planned < began + found]
        assert not any(inside)


def test_an_outage_lasts_from_the_first_bad_request_to_the_next_good_one() -> None:
    samples = [sample(0.0), sample(1.0, kind="http_503"), sample(1.5, 9.0), sample(3.0), sample(4.0)]
    assert longest_outage(samples, 5.0) == (2.0, 1.0)


def test_an_outage_that_does_not_end_counts_at_least_the_deadline() -> None:
    assert longest_outage([sample(0.0), sample(1.0, kind="disconnected")], 5.0) == (5.0, 1.0)
    assert longest_outage([], 5.0) == (0.0, 0.0)


@pytest.mark.parametrize("kind", ["unfinished", "disconnected", "other_id", "other_answer"])
def test_a_request_without_its_own_answer_is_not_answered_once(kind: str) -> None:
    assert not sum_up([sample(0.0), sample(1.0, kind=kind)], 1.0, 0).once


def test_refusals_leave_every_accepted_request_answered_once_and_second_answers_do_not() -> None:
    samples = [sample(0.0), sample(1.0, kind="http_429")]
    assert sum_up(samples, 1.0, 0).once
    assert not sum_up(samples, 1.0, 1).once


def outcome(good: int, offered: int) -> Outcome:
    return sum_up([sample(at) for at in range(good)] + [sample(offered, 9.0)] * (offered - good), 1.0, 0)


def growth(*, leaks: bool) -> Growth:
    return Growth(
        name="gateway",
        pid=7,
        quantity="descriptors",
        seconds=600.0,
        first=40.0,
        last=90.0,
        grown=50.0,
        per_hour=300.0,
        allowed=8.0,
        leaks=leaks,
    )


WELL = End(in_flight=0, missing=())


def missed(outcome: Outcome, growths: list[Growth], end: End, *, own: bool = True) -> list[str]:
    return [check.name for check in judge(outcome, growths, end, Bars(), own=own) if not check.holds]


def test_a_run_without_a_fault_holds_every_bar() -> None:
    assert missed(outcome(10_000, 10_000), [growth(leaks=False)], WELL) == []


def test_one_request_in_ten_thousand_may_miss_and_two_may_not() -> None:
    assert missed(outcome(9_999, 10_000), [], WELL) == []
    assert missed(outcome(9_998, 10_000), [], WELL) == ["availability"]


def test_each_bar_is_missed_for_its_own_reason() -> None:
    good = outcome(100, 100)
    assert missed(good, [growth(leaks=True)], WELL) == ["no growth"]
    assert missed(good, [], End(in_flight=3, missing=())) == ["nothing left in flight"]
    assert missed(good, [], End(in_flight=None, missing=())) == ["nothing left in flight"]
    assert missed(good, [], End(in_flight=0, missing=("pod-2",))) == ["all back"]
    assert missed(good, [], End(in_flight=0, missing=(), resized=("2 -> 3",))) == ["size kept"]


def test_a_fleet_of_others_is_judged_by_its_answers_alone() -> None:
    busy = End(in_flight=12, missing=())
    assert missed(outcome(100, 100), [], busy, own=False) == []
    assert missed(outcome(0, 0), [], busy, own=False) == ["availability"]
