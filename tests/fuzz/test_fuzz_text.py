"""Texts as an enemy would write them, through all that a correction does to one; and how the work grows with them.

What each step promises has properties of its own in tests/unit/text.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.text import Utf16, apply, correct_segments, edits, keep_emoji, kind_of, segment, similarity, widened
from tests.fuzz.corpus import cases, effort
from tests.fuzz.hostile_bytes import damaged
from tests.unit.text.hard_texts import any_text

MOST_CHARACTERS = 400
ONCE, OFTEN = 500, 2_000
# Four times the text may cost sixteen times as many calls where something is quadratic; linear is four.
MOST_GROWTH = 8.0
KEPT = [pytest.param(data, id=name) for name, data in cases("texts")]

encoded = any_text.map(lambda text: text.encode("utf-8", "surrogatepass"))
hostile = damaged(encoded).map(lambda data: data.decode("utf-8", "replace")) | any_text


def correct(text: str, answer: Callable[[str], str]) -> None:
    """All that is done to a text and its answers."""
    found = segment(text, max_characters=MOST_CHARACTERS)
    changes = correct_segments(text, found, [answer(one.text) for one in found])
    corrected = apply(text, changes)
    assert apply(text, edits(text, corrected)) == corrected
    units = Utf16(text)
    for edit in widened(text, changes):
        assert 0 <= units.unit(edit.start) <= units.unit(edit.end)
        kind_of(text[edit.start : edit.end], edit.replacement)
    keep_emoji(text, corrected)
    similarity(text, corrected)


@effort(60)
@given(text=hostile, other=hostile, whole=st.booleans())
def test_any_text_is_corrected_to_any_answer(text: str, other: str, whole: bool) -> None:
    correct(text, lambda sentence: other if whole else sentence + other)


def calls(work: Callable[[], object]) -> int:
    """How many calls `work` makes, of Python's functions and of C's."""
    count = 0

    def note(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def check_growth(unit: str) -> None:
    def work(length: int) -> int:
        text = (unit * (length // len(unit) + 1))[:length]
        return calls(lambda: correct(text, str.upper))

    work(ONCE)  # caches are filled
    assert work(OFTEN) <= MOST_GROWTH * work(ONCE)


@effort(6)
@given(unit=hostile.filter(lambda text: 0 < len(text) <= 50))
def test_the_work_grows_with_the_text_and_not_faster(unit: str) -> None:
    check_growth(unit)


@pytest.mark.parametrize("data", KEPT)
def test_a_kept_text_is_no_trouble(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    correct(text, lambda sentence: sentence[::-1])
    check_growth(text[:50])
