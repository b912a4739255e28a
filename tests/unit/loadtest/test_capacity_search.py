"""Which rate is tried next, and when the search for a capacity ends."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from copydesk.loadtest.search import CONFIRMING, LONGEST, Found, Hopeless, Measure, Purpose, Scope, next_step
from copydesk.loadtest.trial import Trial
from copydesk.loadtest.verdict import Rules, Verdict, judge

RULES = Rules()
SCOPE = Scope(start=10.0, floor=0.1, processes=4)


def trial(step: Measure, *, misses: int, late_ms: float = 0.5, arrivals: int = 1000) -> Trial:
    arrivals *= step.length
    return Trial(
        rate=step.rate,
        length=step.length,
        processes=step.processes,
        seconds=arrivals / step.rate,
        arrivals=arrivals,
        completed=arrivals,
        slow=misses,
        shed=0,
        errors=0,
        sent_rate=step.rate,
        late_p99_ms=late_ms,
        concurrency=step.rate / 10,
        in_flight=(1.0,) * 40,
        p50_ms=50.0,
        p99_ms=90.0,
        max_ms=100.0,
    )


def search(
    answer: Callable[[Measure], Trial], scope: Scope = SCOPE, most: int = 500
) -> tuple[Found | Hopeless, list[Trial], list[Measure]]:
    trials: list[Trial] = []
    steps: list[Measure] = []
    for _ in range(most):
        step = next_step(trials, RULES, scope)
        if not isinstance(step, Measure):
            return step, trials, steps
        steps.append(step)
        trials.append(answer(step))
    raise AssertionError(f"no end after {most} trials")


def step_server(capacity: float) -> Callable[[Measure], Trial]:
    """Nobody misses up to its capacity, everybody above."""
    return lambda step: trial(step, misses=0 if step.rate <= capacity else 1000 * step.length)


@settings(max_examples=60, deadline=None)
@given(st.floats(0.2, 100_000), st.floats(0.2, 100_000))
def test_the_capacity_of_a_monotone_server_is_found_within_three_percent(capacity: float, start: float) -> None:
    scope = Scope(start=start, floor=0.01, processes=1)
    found, trials, _ = search(step_server(capacity), scope)
    assert isinstance(found, Found)
    assert found.trial.rate <= capacity < found.trial.rate * 1.03 * 1.0001
    assert found.trial.length == CONFIRMING
    assert found.high is not None
    assert found.low <= found.trial.rate <= capacity < found.high
    assert found.bounded_by == "fleet"
    assert len(trials) < 50


def test_rates_double_until_one_fails_and_are_bisected_in_log_space_then() -> None:
    _, _, steps = search(step_server(57.0))
    doubling = [step.rate for step in steps if step.purpose is Purpose.DOUBLE]
    bisected = [step.rate for step in steps if step.purpose is Purpose.BISECT]
    assert doubling == [10.0, 20.0, 40.0, 80.0]
    assert bisected[0] == pytest.approx((40 * 80) ** 0.5, rel=1e-4)
    assert [step.purpose for step in steps if step.length == CONFIRMING] == [
        Purpose.CONFIRM,
        Purpose.CONFIRM_LIMIT,
    ]


def test_a_start_that_is_too_much_is_halved_until_it_is_not() -> None:
    found, _, steps = search(step_server(1.0))
    assert [step.rate for step in steps[:5]] == [10.0, 5.0, 2.5, 1.25, 0.625]
    assert isinstance(found, Found)
    assert found.trial.rate == pytest.approx(1.0, rel=0.03)


def test_a_fleet_that_holds_nothing_is_given_up_at_the_floor_with_the_reason() -> None:
    found, trials, _ = search(step_server(0.0))
    assert isinstance(found, Hopeless)
    assert found.trial.rate == SCOPE.floor == min(one.rate for one in trials)
    assert "missed" in found.reasons[0]


def test_the_search_goes_no_further_than_it_may_and_says_so() -> None:
    found, trials, _ = search(step_server(1e9), Scope(start=10, floor=1, limit=70.0))
    assert isinstance(found, Found)
    assert (found.trial.rate, found.bounded_by, found.high) == (70.0, "limit", None)
    assert max(one.rate for one in trials) == 70.0


def test_a_start_beyond_the_limit_begins_at_the_limit() -> None:
    _, trials, _ = search(step_server(1e9), Scope(start=100, floor=1, limit=70.0))
    assert trials[0].rate == 70.0


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.floats(1, 10_000))
def test_chance_does_not_lead_far_astray_and_the_search_ends(seed: int, capacity: float) -> None:
    rng = random.Random(seed)

    def noisy(step: Measure) -> Trial:
        """The share of misses rises with the load as in a queue, from far below 1 % to far above it."""
        load = step.rate / capacity
        share = min(1.0, 0.0075 * load**24)
        n = 1000 * step.length
        misses = min(n, max(0, round(rng.gauss(n * share, (n * share * (1 - share)) ** 0.5 if share < 1 else 0))))
        return trial(step, misses=misses)

    found, trials, _ = search(noisy)
    assert isinstance(found, Found)
    assert found.trial.rate == pytest.approx(capacity, rel=0.12)
    assert found.low <= found.trial.rate
    assert len(trials) < 60


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6))
def test_even_a_server_that_answers_at_random_brings_it_to_an_end(seed: int) -> None:
    rng = random.Random(seed)

    def random_one(step: Measure) -> Trial:
        return trial(step, misses=rng.choice([0, 5, 8, 12, 1000]), late_ms=rng.choice([0.5, 0.5, 0.5, 50.0]))

    found, trials, _ = search(random_one, Scope(start=10.0, floor=0.1, limit=1e4, processes=4), most=5000)
    assert isinstance(found, Found | Hopeless)
    tried = Counter(one.rate for one in trials if judge(one, RULES).verdict is not Verdict.INVALID)
    assert max(tried.values(), default=0) <= 4


def test_one_unlucky_trial_is_taken_back_by_a_longer_one() -> None:
    unlucky = itertools.count()

    def answer(step: Measure) -> Trial:
        stalled = step.rate == 40.0 and step.length == 1 and next(unlucky) == 0
        return trial(step, misses=1000) if stalled else step_server(57.0)(step)

    found, _, _ = search(answer)
    assert isinstance(found, Found)
    # 40 failed once; the search crept up to it, tried it again for longer, and went on beyond it.
    assert found.trial.rate == pytest.approx(57.0, rel=0.03)


def test_one_lucky_trial_is_taken_back_by_a_longer_one() -> None:
    def answer(step: Measure) -> Trial:
        lucky = step.rate == 80.0 and step.length == 1
        return trial(step, misses=0) if lucky else step_server(57.0)(step)

    found, _, _ = search(answer)
    assert isinstance(found, Found)
    assert found.trial.rate == pytest.approx(57.0, rel=0.03)


def test_an_undecided_trial_is_repeated_twice_and_four_times_as_long() -> None:
    def answer(step: Measure) -> Trial:
        return trial(step, misses=8 * step.length if step.rate == 40.0 else 0 if step.rate < 40 else 1000)

    _, trials, steps = search(answer)
    assert judge(trials[2], RULES).verdict is Verdict.UNDECIDED
    at_forty = [(step.length, step.purpose) for step in steps if step.rate == 40.0]
    assert at_forty[:3] == [(1, Purpose.DOUBLE), (2, Purpose.REPEAT), (LONGEST, Purpose.REPEAT)]


def test_an_answer_that_a_repetition_gave_is_confirmed_by_another_trial() -> None:
    def answer(step: Measure) -> Trial:
        marginal = step.rate == 40.0 and step.length == 1
        return trial(step, misses=8 if marginal else 0 if step.rate <= 40 else 1000)

    found, trials, steps = search(answer, Scope(start=10.0, floor=0.1, processes=1, precision=0.5))
    assert isinstance(found, Found)
    assert found.trial.rate == 40.0
    at_forty = [(step.length, step.purpose) for step in steps if step.rate == 40.0]
    assert at_forty == [(1, Purpose.DOUBLE), (2, Purpose.REPEAT), (2, Purpose.CONFIRM)]
    assert found.trial is [one for one in trials if one.rate == 40.0][-1]


def test_a_repetition_that_is_not_confirmed_is_taken_back() -> None:
    at_forty = itertools.count()

    def answer(step: Measure) -> Trial:
        if step.rate != 40.0:
            return trial(step, misses=0 if step.rate < 40 else 1000)
        return trial(step, misses=(8, 0, 1000)[next(at_forty)])

    found, _, _ = search(answer)
    assert isinstance(found, Found)
    assert found.trial.rate < 40.0


def test_a_late_generator_gets_more_processes_and_keeps_them() -> None:
    def answer(step: Measure) -> Trial:
        return trial(
            step, misses=0 if step.rate <= 57 else 1000, late_ms=20.0 if step.rate > 15 > step.processes * 8 else 1
        )

    found, trials, steps = search(answer)
    assert isinstance(found, Found)
    assert found.trial.rate == pytest.approx(57.0, rel=0.03)
    assert [(step.rate, step.processes) for step in steps[:3]] == [(10.0, 1), (20.0, 1), (20.0, 2)]
    assert steps[2].purpose is Purpose.RESEND
    assert {step.processes for step in steps[2:]} == {2}
    assert found.bounded_by == "fleet"
    assert judge(trials[1], RULES).verdict is Verdict.INVALID


def test_where_no_number_of_processes_keeps_the_schedule_the_answer_is_bounded_by_the_generator() -> None:
    def answer(step: Measure) -> Trial:
        return trial(step, misses=0, late_ms=20.0 if step.rate > 57 else 1.0)

    found, _, steps = search(answer)
    assert isinstance(found, Found)
    assert (found.bounded_by, found.high) == ("generator", None)
    assert found.trial.rate == pytest.approx(57.0, rel=0.03)
    assert [step.processes for step in steps if step.rate == 80.0] == [1, 2, 4, 4, 4]
    # The lowest of them is tried once more, in case the disturbance is over.
    assert [step.rate for step in steps if step.purpose is Purpose.ONCE_MORE] == [
        min(step.rate for step in steps if step.rate > found.trial.rate)
    ]


def test_once_the_disturbance_is_over_the_search_goes_on_beyond_it() -> None:
    disturbed = itertools.count()

    def answer(step: Measure) -> Trial:
        late = step.rate > 15 and next(disturbed) < 12
        return trial(step, misses=0 if step.rate <= 57 else 1000, late_ms=20.0 if late else 1.0)

    found, _, _ = search(answer)
    assert isinstance(found, Found)
    assert found.trial.rate == pytest.approx(57.0, rel=0.03)
    assert found.bounded_by == "fleet"


def test_a_machine_that_sends_nothing_in_time_is_given_up_soon() -> None:
    found, trials, _ = search(lambda step: trial(step, misses=0, late_ms=50.0), Scope(start=100.0, floor=0.01))
    assert isinstance(found, Hopeless)
    assert found.reasons == ("requests were sent late (P99 50.0 ms)",)
    assert len({one.rate for one in trials}) == 3


def test_the_curve_gets_points_where_none_were_measured() -> None:
    _, trials, steps = search(step_server(57.0), Scope(start=50.0, floor=0.1))
    extra = [step.rate for step in steps if step.purpose is Purpose.CURVE]
    (found, *_) = [one.rate for one in trials if one.length == CONFIRMING]
    assert extra == [pytest.approx(part * found, rel=1e-3) for part in (0.2, 0.4, 0.6)]


@settings(max_examples=30, deadline=None)
@given(st.floats(1, 1000), st.data())
def test_a_search_that_was_interrupted_goes_on_as_if_it_had_not(capacity: float, data: st.DataObject) -> None:
    _, trials, steps = search(step_server(capacity))
    kept = data.draw(st.integers(0, len(trials) - 1))
    assert next_step(trials[:kept], RULES, SCOPE) == steps[kept]
