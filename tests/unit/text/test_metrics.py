"""Measures of a correction, against cases counted by hand."""

from __future__ import annotations

import math
import random

import pytest

from copydesk.text import Edit
from copydesk.text.metrics import (
    EditScore,
    GleuCounts,
    UnequalCorpusError,
    edit_score,
    exact_match,
    gleu,
    gleu_counts,
)

SOURCE = "He go to school every day ."
REFERENCE = "He goes to school every day ."


def score(source: str, hypothesis: str, *references: str, draws: int = 500, seed: int = 1) -> float:
    return gleu([source], [hypothesis], [references], rng=random.Random(seed), draws=draws)


def test_the_reference_itself_scores_one() -> None:
    assert score(SOURCE, REFERENCE, REFERENCE) == pytest.approx(1.0)


def test_errors_left_in_place_are_taken_off() -> None:
    counts = gleu_counts(SOURCE.split(), SOURCE.split(), REFERENCE.split())
    # Of 7, 6, 5, 4 n-grams the reference has 6, 4, 3, 2; the source has 1, 2, 2, 2 that the reference lacks.
    assert counts == GleuCounts(7, 7, (5, 2, 1, 0), (7, 6, 5, 4))
    assert score(SOURCE, SOURCE, REFERENCE) == 0.0


def test_a_new_error_costs_less_than_one_left_in_place() -> None:
    hypothesis = "He gone to school every day ."
    expected = math.exp(sum(math.log(p) for p in (6 / 7, 4 / 6, 3 / 5, 2 / 4)) / 4)
    assert score(SOURCE, hypothesis, REFERENCE) == pytest.approx(expected)


def test_a_repeated_word_matches_only_as_often_as_the_reference_has_it() -> None:
    assert gleu_counts(["a"], ["the", "the", "the"], ["the", "dog"]).matches == (1, 0, 0, 0)


def test_a_short_hypothesis_pays_the_brevity_penalty() -> None:
    hypothesis = "He goes to school every"
    assert score(SOURCE, hypothesis, REFERENCE) == pytest.approx(math.exp(1 - 7 / 5))


def test_counts_of_a_corpus_are_summed_before_they_are_divided() -> None:
    pair = gleu([SOURCE, "a"], [REFERENCE, "b"], [[REFERENCE], ["b"]], rng=random.Random(1))
    assert pair == pytest.approx(1.0)
    mixed = gleu([SOURCE, "a"], [REFERENCE, "a"], [[REFERENCE], ["b"]], rng=random.Random(1))
    assert mixed == pytest.approx((7 / 8) ** 0.25)


def test_several_references_are_averaged_over_draws() -> None:
    other = "He went to school every day ."
    against_other = score(SOURCE, REFERENCE, other)
    drawn = score(SOURCE, REFERENCE, REFERENCE, other, draws=2000)
    assert drawn == pytest.approx((1 + against_other) / 2, abs=0.02)
    assert drawn == score(SOURCE, REFERENCE, REFERENCE, other, draws=2000)


@pytest.mark.parametrize(
    ("hypotheses", "references"), [([], []), (["a"], [["a"], ["b"]]), (["a", "b"], [["a"]]), (["a"], [[]])]
)
def test_a_corpus_that_is_not_parallel_is_refused(hypotheses: list[str], references: list[list[str]]) -> None:
    with pytest.raises(UnequalCorpusError):
        gleu(["a"] * len(hypotheses), hypotheses, references, rng=random.Random(1))


def test_exact_matches_count_any_reference() -> None:
    assert exact_match(["a", "b", "c", "D"], [["x", "a"], ["b"], ["x"], ["d"]]) == 0.5


def test_edits_are_compared_in_full_and_sentence_by_sentence() -> None:
    goes, wrong, article = Edit(3, 5, "goes"), Edit(3, 5, "went"), Edit(0, 0, "A ")
    found = edit_score([[goes, article], [wrong], [goes]], [[goes], [goes], []])
    assert found == EditScore(true_positives=1, false_positives=3, false_negatives=1)
    assert (found.precision, found.recall) == (0.25, 0.5)
    assert found.f_half == pytest.approx(1.25 * 0.25 * 0.5 / (0.25 * 0.25 + 0.5))


def test_nothing_to_do_and_nothing_done_is_perfect() -> None:
    assert edit_score([[]], [[]]).f_half == 1.0


def test_nothing_right_scores_zero() -> None:
    assert edit_score([[Edit(0, 1, "x")]], [[Edit(1, 2, "y")]]).f_half == 0.0
