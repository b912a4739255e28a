"""The verdict, with plain losses."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.evaluation import MarginError, Verdict
from copydesk.evaluation.figures import Figure
from copydesk.evaluation.gates import Loss, check_margins, distance_of, judge, loss_of, needed, overall, rise_of


def verdict(low: float, value: float, high: float, *, sentences: int = 400, margin: float = 1.0) -> Verdict:
    return judge("gleu", Loss(value, low, high, sentences), margin).verdict


def test_a_loss_that_is_surely_within_its_margin_passes() -> None:
    assert verdict(-0.4, 0.1, 0.6) is Verdict.PASS
    assert verdict(-0.4, 0.1, 1.0) is Verdict.PASS


def test_a_loss_that_is_surely_beyond_it_fails() -> None:
    assert verdict(1.1, 2.0, 2.9) is Verdict.FAIL


def test_a_loss_that_may_be_either_is_not_told() -> None:
    assert verdict(-0.5, 0.5, 1.5) is Verdict.INCONCLUSIVE
    assert verdict(0.5, 1.5, 2.5) is Verdict.INCONCLUSIVE


def test_few_sentences_without_a_difference_show_nothing_yet() -> None:
    gate = judge("gleu", Loss(0.0, 0.0, 0.0, 20), 1.0)
    assert gate.verdict is Verdict.INCONCLUSIVE
    assert gate.needed == 30


def test_a_handful_of_sentences_can_fail_nobody_but_ten_can() -> None:
    assert verdict(20.0, 30.0, 40.0, sentences=9) is Verdict.INCONCLUSIVE
    assert verdict(20.0, 30.0, 40.0, sentences=10) is Verdict.FAIL


def test_half_the_doubt_takes_four_times_the_sentences() -> None:
    assert needed(Loss(0.0, -2.0, 2.0, 100), 1.0) == 300
    assert needed(Loss(3.0, -1.0, 7.0, 100), 1.0) == 300


def test_a_loss_that_is_its_margin_takes_more_than_there_are() -> None:
    assert needed(Loss(1.0, 0.0, 2.0, 100), 1.0) is None
    assert needed(Loss(0.999, 0.0, 2.0, 100), 1.0) is None


def test_one_failure_fails_all_and_one_doubt_leaves_it_open() -> None:
    passed, open_, failed = (
        judge("gleu", loss, 1.0) for loss in (Loss(0, 0, 0, 99), Loss(0, -9, 9, 99), Loss(5, 4, 6, 99))
    )
    assert overall([passed, passed]) is Verdict.PASS
    assert overall([passed, open_]) is Verdict.INCONCLUSIVE
    assert overall([passed, open_, failed]) is Verdict.FAIL
    assert overall([]) is Verdict.INCONCLUSIVE


def test_a_rise_has_doubt_where_no_difference_was_seen() -> None:
    none = rise_of(np.zeros(100), np.zeros(100))
    assert none.value == 0.0
    assert 0.0 < none.high < 2.0
    assert none.low == -none.high
    assert rise_of(np.zeros(300), np.zeros(300)).high < none.high / 2


def test_a_rise_is_in_points_of_clean_sentences() -> None:
    candidate, reference = np.zeros(200), np.zeros(200)
    candidate[:20], reference[:4] = 1.0, 1.0
    rise = rise_of(candidate, reference)
    assert rise.value == pytest.approx(8.0)
    assert 3.0 < rise.low < 8.0 < rise.high < 13.0


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=60))
def test_swapping_the_models_turns_a_rise_round(pairs: list[tuple[bool, bool]]) -> None:
    one, other = np.array(pairs, dtype=np.float64).T
    there, back = rise_of(one, other), rise_of(other, one)
    assert math.isclose(there.value, -back.value, abs_tol=1e-9)
    assert math.isclose(there.low, -back.high, abs_tol=1e-9)


def test_losses_count_downwards_and_distances_from_the_whole() -> None:
    difference = Figure(-0.5, np.array([-0.6, -0.5, -0.4]), 3)
    assert loss_of(difference, 1.0).value == 0.5
    assert distance_of(Figure(0.98, np.array([0.97, 0.98, 0.99]), 3)).value == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("name", "value"), [("glue", 1.0), ("gleu", -1.0), ("gleu", math.nan), ("gleu", math.inf)]
)
def test_margins_that_cannot_be_are_refused(name: str, value: float) -> None:
    with pytest.raises(MarginError):
        check_margins({name: value})
