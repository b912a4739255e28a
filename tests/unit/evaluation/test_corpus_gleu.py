"""GLEU of a whole corpus, against the measure it is laid out from and against published figures."""

from __future__ import annotations

import os
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.evaluation import Source, read_corpus
from copydesk.evaluation.gleu import References
from copydesk.evaluation.resampling import weights
from copydesk.text.metrics import gleu

WORDS = ["the", "a", "cat", "dog", "sat", "sits", "on", "mat"]
LINE = st.lists(st.sampled_from(WORDS), min_size=1, max_size=9).map(" ".join)
ROWS = st.lists(st.tuples(LINE, LINE, LINE, LINE), min_size=1, max_size=5)
Rows = list[tuple[str, str, str, str]]


def counted(rows: Rows, answers: list[str] | None = None, references: int = 1) -> float:
    references_ = [[first, second][:references] for _, _, first, second in rows]
    found = References([row[0] for row in rows], references_)
    return found.count(answers or [row[1] for row in rows]).score()


@given(ROWS)
def test_with_one_reference_it_is_the_measure_itself(rows: Rows) -> None:
    sources, answers, references, _ = (list(column) for column in zip(*rows, strict=True))
    expected = 100 * gleu(sources, answers, [[one] for one in references], rng=random.Random(1))
    assert counted(rows) == pytest.approx(expected)


@given(ROWS)
def test_it_lies_between_0_and_100(rows: Rows) -> None:
    assert 0.0 <= counted(rows, references=2) <= 100.0 + 1e-9


@given(ROWS)
def test_the_only_reference_for_an_answer_is_worth_100_if_it_has_four_words(rows: Rows) -> None:
    long = [(source, answer, reference + " and so it goes", other) for source, answer, reference, other in rows]
    assert counted(long, [row[2] for row in long]) == pytest.approx(100.0)


@given(ROWS, st.randoms())
def test_the_order_of_sentences_does_not_matter(rows: Rows, rng: random.Random) -> None:
    shuffled = list(rows)
    rng.shuffle(shuffled)
    assert counted(shuffled) == pytest.approx(counted(rows))


@given(ROWS)
def test_the_order_of_equal_references_does_not_matter(rows: Rows) -> None:
    doubled = [(source, answer, one, one) for source, answer, one, _ in rows]
    assert counted(doubled, references=2) == pytest.approx(counted(doubled, references=1))


def test_several_references_are_drawn_as_often_as_each_other() -> None:
    source, answer = "He go to school every day .", "He goes to school every day ."
    found = References([source], [[answer, "He went to school every day ."]])
    against_other = References([source], [["He went to school every day ."]]).count([answer]).score()
    assert found.count([answer]).score() == pytest.approx((100 + against_other) / 2, abs=3.0)


@given(ROWS)
def test_a_resample_with_every_sentence_once_is_the_corpus(rows: Rows) -> None:
    found = References([row[0] for row in rows], [[row[2]] for row in rows]).count([row[1] for row in rows])
    assert found.resampled(np.ones((1, len(rows))))[0] == pytest.approx(found.score())


def test_a_resample_counts_a_sentence_as_often_as_it_was_drawn() -> None:
    sources, answers = ["a b c d e", "x y z v w"], ["a b c d f", "x y z v w"]
    references = [["a b c d f"], ["x y z v q"]]
    found = References(sources, references).count(answers)
    thrice = References([sources[0]] * 3 + [sources[1]], [references[0]] * 3 + [references[1]])
    expected = thrice.count([answers[0]] * 3 + [answers[1]]).score()
    assert found.resampled(np.array([[3.0, 1.0]]))[0] == pytest.approx(expected)


def test_the_effect_of_a_sentence_is_what_the_other_answer_would_change() -> None:
    sources = ["He go to school every day .", "She like it very much indeed ."]
    references = [["He goes to school every day ."], ["She likes it very much indeed ."]]
    found = References(sources, references)
    ours, theirs = found.count([references[0][0], references[1][0]]), found.count([sources[0], references[1][0]])
    effects = ours.effects(theirs)
    assert effects[0] == pytest.approx(ours.score() - theirs.score())
    assert effects[1] == 0.0


def test_the_same_seed_draws_the_same_sentences() -> None:
    assert (weights(20, 50, 3) == weights(20, 50, 3)).all()
    assert (weights(20, 50, 3) != weights(20, 50, 4)).any()
    assert (weights(20, 50, 3).sum(axis=1) == 20).all()


@pytest.mark.skipif("COPYDESK_TEST_JFLEG" not in os.environ, reason="COPYDESK_TEST_JFLEG names no copy of JFLEG")
def test_the_unchanged_text_of_jfleg_has_its_published_score() -> None:
    folder = Path(os.environ["COPYDESK_TEST_JFLEG"])
    references = tuple(folder / f"dev.ref{number}" for number in range(4))
    corpus = read_corpus(Source(folder / "dev.src", references))
    assert corpus.tokenised
    sources = [example.source for example in corpus.examples]
    found = References(sources, [example.references for example in corpus.examples])
    assert round(found.count(sources).score(), 2) == 38.21
