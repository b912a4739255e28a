"""Between which rates the answer surely lies, from the trials of a search."""

from __future__ import annotations

import msgspec
import pytest

from copydesk.loadtest.interval import interval
from copydesk.loadtest.trial import Trial
from copydesk.loadtest.verdict import Rules

RULES = Rules()


def trial(rate: float, misses: int, arrivals: int = 1000, **changes: object) -> Trial:
    plain = Trial(
        rate=rate,
        length=1,
        processes=1,
        seconds=arrivals / rate,
        arrivals=arrivals,
        completed=arrivals,
        slow=misses,
        shed=0,
        errors=0,
        sent_rate=rate,
        late_p99_ms=1.0,
        concurrency=1.0,
        in_flight=(1.0,) * 40,
        p50_ms=10.0,
        p99_ms=20.0,
        max_ms=30.0,
    )
    return msgspec.structs.replace(plain, **changes)


def test_the_ends_are_the_rates_nearest_to_the_answer_that_are_sure() -> None:
    trials = [trial(10, 0), trial(20, 0), trial(40, 500), trial(30, 100)]
    assert interval(trials, 20, RULES) == (20, 30)


def test_a_trial_that_proves_too_little_moves_the_end_away() -> None:
    trials = [trial(10, 0), trial(20, 8), trial(40, 500), trial(30, 12)]
    assert interval(trials, 20, RULES) == (10, 40)


def test_trials_close_to_each_other_prove_more_together_than_each_does() -> None:
    # 400 without a miss are too few for 99.5 %, and 800 are enough; at the lower of both, where fewer miss.
    assert interval([trial(19, 0, 400), trial(20, 0, 400)], 20, RULES) == (19, None)
    assert interval([trial(20, 0, 400)], 20, RULES) == (0.0, None)


def test_an_unlucky_trial_counts_as_much_as_a_lucky_one() -> None:
    assert interval([trial(20, 0), trial(20, 100)], 20, RULES) == (0.0, None)


def test_requests_that_are_slow_together_prove_less() -> None:
    alone, together = trial(30, 40), trial(30, 40, design_effect=30.0)
    assert interval([trial(20, 0), alone], 20, RULES) == (20, 30)
    assert interval([trial(20, 0), together], 20, RULES) == (20, None)
    assert interval([trial(20, 0, design_effect=3.0)], 20, RULES) == (0.0, None)


def test_a_queue_that_builds_up_is_too_much_even_while_nobody_is_late() -> None:
    growing = trial(30, 0, in_flight=tuple(float(i) for i in range(40)))
    assert interval([trial(20, 0), growing], 20, RULES) == (20, 30)


def test_trials_that_were_not_sent_in_time_do_not_count() -> None:
    late = trial(30, 500, late_p99_ms=20.0)
    assert interval([trial(20, 0), late, msgspec.structs.replace(late, rate=10.0)], 20, RULES) == (20, None)


@pytest.mark.parametrize(("stopped", "high"), [(True, 40), (False, 40)])
def test_a_trial_that_was_stopped_counts_for_what_it_showed(stopped: bool, high: float) -> None:
    overload = trial(40, 60, 300, stopped=stopped, completed=240)
    assert interval([trial(20, 0), overload], 20, RULES) == (20, high)
