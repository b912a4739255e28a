"""The guard's measure of how alike two texts are."""

from __future__ import annotations

import pytest
from hypothesis import given

from copydesk.text import similarity
from tests.unit.text.hard_texts import any_text

CORRECTIONS = [
    ("he go", "he goes"),
    ("i", "I"),
    ("Helo", "Hello"),
    ("u", "you"),
    ("alot", "a lot"),
    ("wanna", "want to"),
    ("infact", "In fact,"),
    ("dont", "don't"),
    ("teh cat", "The cat"),
    ("she have two childs", "She has two children"),
    ("yesterday i goed to home", "Yesterday I went home"),
    ("what time it is", "What time is it?"),
]

STRANGERS = [
    ("She go to school every day.", "I am a language model."),
    ("Hello", "Goodbye"),
    ("he go", "The weather is nice"),
    ("Thank you very much for your help.", "Thank"),
    ("no", "no no no no no no no no"),
    ("ok", ""),
    ("???", "yes"),
]


@pytest.mark.parametrize(("source", "target"), CORRECTIONS)
def test_a_correction_is_alike(source: str, target: str) -> None:
    assert similarity(source, target) >= 0.5


@pytest.mark.parametrize(("source", "target"), STRANGERS)
def test_another_sentence_is_not(source: str, target: str) -> None:
    assert similarity(source, target) < 0.5


@given(any_text, any_text)
def test_likeness_lies_between_nothing_and_all(source: str, target: str) -> None:
    assert 0.0 <= similarity(source, target) <= 1.0
    assert similarity(source, source) == 1.0


def test_equal_words_count_whole_and_like_ones_in_part() -> None:
    assert similarity("a big dog", "a big cat") == pytest.approx(2 / 3)
    assert similarity("Helo", "Hello") == pytest.approx(8 / 9)
    assert similarity("HE GO!", "he goes") == pytest.approx((2 + 4 / 3) / 4)
