"""What kind of mistake an edit mends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.text import Kind, edits, kind_of
from copydesk.text.common_words import COMMON_WORDS
from tests.unit.text.hard_texts import any_text

spaced = st.lists(st.sampled_from(["she", "goes", ",", ".", "home", "\u2019s"]), min_size=1, max_size=6)
space = st.sampled_from([" ", "  ", "\n", "\t", ""])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("recieved", "received"),
        ("teh", "the"),
        ("thier", "their"),
        ("becuase", "because"),
        ("carefull", "careful"),
        ("realy", "really"),
        ("happend", "happened"),
        ("arrivd", "arrived"),
        ("studing", "studying"),
        ("definately", "definitely"),
        ("hav", "have"),
        ("leter", "letter"),
        ("begining", "beginning"),
        ("dont", "don't"),
        ("dont", "don\u2019t"),
        ("alot", "a lot"),
        ("every one", "everyone"),
        ("Recieved", "received"),
        ("recieved teh", "received the"),
    ],
)
def test_a_word_that_is_none_and_spelt_nearly_so_is_misspelt(old: str, new: str) -> None:
    assert kind_of(old, new) is Kind.SPELLING


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("go", "goes"),
        ("have", "has"),
        ("brother", "brothers"),
        ("informations", "information"),
        ("study", "studies"),
        ("stop", "stopped"),
        ("making", "make"),
        ("nice", "nicer"),
        ("students", "student's"),
        ("childs", "children"),
        ("man", "men"),
        ("there", "their"),
        ("its", "it's"),
        ("your", "you\u2019re"),
        ("house", "apartment"),
        ("", "the "),
        ("the the", "the"),
        ("go home she", "she goes home"),
        ("have recieved", "has received"),
    ],
)
def test_another_form_or_another_word_is_grammar(old: str, new: str) -> None:
    assert kind_of(old, new) is Kind.GRAMMAR


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ("i", "I", Kind.CASING),
        ("monday", "Monday", Kind.CASING),
        ('"monday"', '"Monday"', Kind.CASING),
        ("", ",", Kind.PUNCTUATION),
        (".", "?", Kind.PUNCTUATION),
        ("However", "However,", Kind.PUNCTUATION),
        ("home. then", "home, then", Kind.PUNCTUATION),
        ("home. Then", "home, then", Kind.PUNCTUATION),
        ("Hello ,", "Hello,", Kind.WHITESPACE),
        ("", " ", Kind.WHITESPACE),
        ("a  b", "a b", Kind.WHITESPACE),
        ("don't", "don\u2019t", Kind.TYPOGRAPHY),
        ('"so"', "\u201cso\u201d", Kind.TYPOGRAPHY),
        ("1-2", "1\u20132", Kind.TYPOGRAPHY),
        ("...", "\u2026", Kind.TYPOGRAPHY),
    ],
)
def test_case_marks_and_spaces_have_kinds_of_their_own(old: str, new: str, kind: Kind) -> None:
    assert kind_of(old, new) is kind


@given(any_text, any_text)
def test_any_two_texts_have_a_kind(old: str, new: str) -> None:
    assert kind_of(old, new) in Kind


@given(any_text, any_text)
def test_each_edit_of_a_correction_has_a_kind(source: str, target: str) -> None:
    assert all(kind_of(source[edit.start : edit.end], edit.replacement) in Kind for edit in edits(source, target))


@given(spaced, st.data())
def test_nothing_but_spaces_between_the_same_tokens_is_white_space(tokens: list[str], data: st.DataObject) -> None:
    old, new = (
        " ".join(tokens[:1]) + "".join(f" {data.draw(space)}{token}" for token in tokens[1:]) for _ in range(2)
    )
    assert kind_of(old, new) is Kind.WHITESPACE


@given(st.text(alphabet="abcdefgh", min_size=1, max_size=12))
def test_capitals_alone_are_casing(word: str) -> None:
    assert kind_of(word, word.upper()) is Kind.CASING


@given(st.sampled_from(sorted(COMMON_WORDS)), st.sampled_from(sorted(COMMON_WORDS)))
def test_a_common_word_is_never_misspelt(old: str, new: str) -> None:
    assert kind_of(old, new) is not Kind.SPELLING


def test_common_words_are_in_lower_case_with_straight_apostrophes() -> None:
    assert all(word == word.casefold() and "\u2019" not in word for word in COMMON_WORDS)


def test_a_word_without_end_costs_nothing() -> None:
    assert kind_of("x" * 20_000, "y" * 20_000) is Kind.GRAMMAR
