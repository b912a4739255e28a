"""Edits: finding them, applying them."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.text import Edit, EditOutOfRangeError, OverlappingEditsError, apply, edits
from tests.unit.text.hard_texts import any_text

some_words = st.lists(
    st.sampled_from(["a", "b", "she", "goes", ".", ",", " ", "  ", "\n", "don't"]), max_size=25
).map("".join)


@given(st.one_of(any_text, some_words), st.one_of(any_text, some_words))
def test_applying_the_edits_gives_the_target(source: str, target: str) -> None:
    assert apply(source, edits(source, target)) == target


@given(some_words, some_words)
def test_edits_ascend_stay_apart_and_change_something(source: str, target: str) -> None:
    found = edits(source, target)
    assert all(before.end <= after.start for before, after in itertools.pairwise(found))
    assert all(source[edit.start : edit.end] != edit.replacement for edit in found)


@given(st.text(st.characters(codec="ascii"), max_size=40) | st.text("a_'. \r\n\x1c", max_size=20))
def test_words_of_ascii_are_what_they_are_among_other_characters(text: str) -> None:
    changed = text.replace("a", "bb")
    among = edits("\u20ac " + text, "\u20ac " + changed)
    assert [Edit(edit.start + 2, edit.end + 2, edit.replacement) for edit in edits(text, changed)] == among


@given(any_text)
def test_equal_texts_need_no_edit(text: str) -> None:
    assert edits(text, text) == []


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("he go home", "he goes home", [Edit(3, 5, "goes")]),
        ("i am", "I am", [Edit(0, 1, "I")]),
        ("I see dog", "I see a dog", [Edit(6, 6, "a ")]),
        ("see dog", "I see dog", [Edit(0, 0, "I ")]),
        ("I see", "I see it", [Edit(5, 5, " it")]),
        ("I see the the dog", "I see the dog", [Edit(10, 14, "")]),
        ("so I see", "I see", [Edit(0, 3, "")]),
        ("I see it", "I see", [Edit(5, 8, "")]),
        ("I see him", "I see him.", [Edit(9, 9, ".")]),
        ("Yes he can", "Yes, he can", [Edit(3, 3, ",")]),
        ("Yes, he can", "Yes he can", [Edit(3, 4, "")]),
        ("I dont know", "I don't know", [Edit(2, 6, "don't")]),
        ("alot of it", "a lot of it", [Edit(0, 4, "a lot")]),
        ("in to it", "into it", [Edit(0, 5, "into")]),
        ("she go house", "she goes home", [Edit(4, 6, "goes"), Edit(7, 12, "home")]),
        ("a  b", "a b", [Edit(2, 3, "")]),
        ("", "a", [Edit(0, 0, "a")]),
        ("a", "", [Edit(0, 1, "")]),
    ],
)
def test_edits_read_as_a_person_would_mark_them(source: str, target: str, expected: list[Edit]) -> None:
    assert edits(source, target) == expected


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("ab" * 250, "cd" * 250),
        (". " * 250, "! " * 250),
        ("a b " * 125, "b a a " * 83),
        (".,;:" * 125, ";.:," * 125),
        ("." * 12_000, "!" + ",." * 6_000),
    ],
)
def test_unrelated_and_repetitive_texts_are_no_trouble(source: str, target: str) -> None:
    assert apply(source, edits(source, target)) == target


def test_edits_apply_in_any_order() -> None:
    assert apply("he go", [Edit(3, 5, "goes"), Edit(0, 2, "She")]) == "She goes"


def test_insertions_at_one_place_keep_their_order() -> None:
    assert apply("ac", [Edit(1, 1, "x"), Edit(1, 1, "y"), Edit(1, 2, "z")]) == "axyz"


@pytest.mark.parametrize("edit", [Edit(-1, 0, ""), Edit(0, 4, ""), Edit(2, 1, ""), Edit(4, 4, "x")])
def test_an_edit_out_of_range_is_refused(edit: Edit) -> None:
    with pytest.raises(EditOutOfRangeError) as caught:
        apply("abc", [edit])
    assert (caught.value.edit, caught.value.length) == (edit, 3)


@pytest.mark.parametrize(
    ("previous", "edit"),
    [(Edit(0, 2, ""), Edit(1, 3, "")), (Edit(0, 2, ""), Edit(1, 1, "x")), (Edit(0, 2, "a"), Edit(0, 2, "b"))],
)
def test_overlapping_edits_are_refused(previous: Edit, edit: Edit) -> None:
    with pytest.raises(OverlappingEditsError) as caught:
        apply("abc", [previous, edit])
    assert (caught.value.previous, caught.value.edit) == (previous, edit)
