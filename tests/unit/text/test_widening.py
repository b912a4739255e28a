"""Edits that can be seen."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.text import Edit, apply, edits, widened
from tests.unit.text.hard_texts import any_text

some_words = st.lists(
    st.sampled_from(["a", "she", "goes", ".", ",", " ", "  ", "\n", "don't", "😀", "é", "e\u0301"]), max_size=25
).map("".join)
texts = st.one_of(any_text, some_words)


@st.composite
def sources_with_edits(draw: st.DrawFn) -> tuple[str, list[Edit]]:
    """A source and edits at any places at all, not those of a diff."""
    source = draw(texts)
    places = sorted(draw(st.lists(st.integers(0, len(source)), max_size=12)))
    pairs = list(zip(places[::2], places[1::2], strict=False))
    replacements = draw(st.lists(some_words, min_size=len(pairs), max_size=len(pairs)))
    return source, [Edit(start, end, new) for (start, end), new in zip(pairs, replacements, strict=True)]


@given(texts, texts)
def test_widened_edits_still_give_the_corrected_text(source: str, target: str) -> None:
    assert apply(source, widened(source, edits(source, target))) == target


@given(sources_with_edits())
def test_so_do_edits_at_any_place(case: tuple[str, list[Edit]]) -> None:
    source, found = case
    assert apply(source, widened(source, found)) == apply(source, found)


@given(sources_with_edits())
def test_they_ascend_stay_apart_and_cover_something(case: tuple[str, list[Edit]]) -> None:
    source, found = case
    wide = widened(source, found)
    assert all(before.end <= after.start for before, after in itertools.pairwise(wide))
    assert all(edit.start < edit.end or not source for edit in wide)


@given(some_words, some_words)
def test_they_offer_something_unless_nothing_is_left(source: str, target: str) -> None:
    assert all(edit.replacement.strip() for edit in widened(source, edits(source, target))) or not target.strip()


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("I see dog", "I see a dog", [Edit(6, 9, "a dog")]),
        ("I see", "I see it", [Edit(2, 5, "see it")]),
        ("see dog", "I see dog", [Edit(0, 3, "I see")]),
        ("Yes he can", "Yes, he can", [Edit(0, 3, "Yes,")]),
        ("Yes, he can", "Yes he can", [Edit(0, 4, "Yes")]),
        ("I see the the dog", "I see the dog", [Edit(10, 17, "dog")]),
        ("I see it", "I see", [Edit(2, 8, "see")]),
        ("Hello , you", "Hello, you", [Edit(0, 7, "Hello,")]),
        ("a  b", "a b", [Edit(0, 4, "a b")]),
        ("go.Then", "go. Then", [Edit(2, 7, ". Then")]),
        ("well known", "well-known", [Edit(0, 10, "well-known")]),
        ("he go home", "he goes home", [Edit(3, 5, "goes")]),
        ("however he go", "However, he goes", [Edit(0, 7, "However,"), Edit(11, 13, "goes")]),
        ("hi 😀 you", "hi 😀, you", [Edit(3, 4, "😀,")]),
        ("", "a", [Edit(0, 0, "a")]),
    ],
)
def test_an_edit_takes_in_the_word_that_it_belongs_to(source: str, target: str, expected: list[Edit]) -> None:
    assert widened(source, edits(source, target)) == expected


@pytest.mark.parametrize(
    ("source", "edit", "expected"),
    [
        ("goes home", Edit(2, 4, ""), Edit(0, 4, "go")),
        ("gos home", Edit(2, 2, "e"), Edit(0, 3, "goes")),
        ("   ", Edit(1, 1, "x"), Edit(0, 2, " x ")),
        ("a 😀", Edit(3, 3, " b"), Edit(2, 3, "😀 b")),
        ("one (", Edit(4, 4, "two "), Edit(4, 5, "two (")),
        ("one  two", Edit(4, 4, "and"), Edit(0, 4, "one and")),
    ],
)
def test_an_edit_inside_a_word_or_between_spaces(source: str, edit: Edit, expected: Edit) -> None:
    assert widened(source, [edit]) == [expected]
