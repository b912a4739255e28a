"""Showing edits inside a text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from copydesk.cli.api import Edit
from copydesk.cli.edits import Span, marked, spans

TEXT = "She go to school"


def test_a_replacement_shows_what_went_and_what_came() -> None:
    assert list(spans(TEXT, [Edit(4, 6, "goes")])) == [
        Span("kept", "She "),
        Span("removed", "go"),
        Span("added", "goes"),
        Span("kept", " to school"),
    ]


def test_plain_marks_are_those_of_a_word_diff() -> None:
    edits = [Edit(len(TEXT), len(TEXT), "."), Edit(4, 6, "goes")]
    assert marked(spans(TEXT, edits), colour=False) == "She [-go-]{+goes+} to school{+.+}"


def test_offsets_count_code_points() -> None:
    assert marked(spans("\U0001f600 he go", [Edit(5, 7, "goes")]), colour=False) == "\U0001f600 he [-go-]{+goes+}"


def test_colour_takes_the_place_of_marks() -> None:
    shown = marked(spans(TEXT, [Edit(4, 6, "goes")]), colour=True)
    assert "[-" not in shown
    assert "\x1b[9;31mgo\x1b[0m\x1b[1;32mgoes\x1b[0m" in shown


@given(
    st.text(max_size=30),
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 3), st.text(max_size=3)), max_size=5),
)
def test_kept_and_removed_are_the_text(text: str, raw: list[tuple[int, int, str]]) -> None:
    edits, at = [], 0
    for start, length, replacement in sorted(raw):
        if start >= at and start + length <= len(text):
            edits.append(Edit(start, start + length, replacement))
            at = start + length
    pieces = list(spans(text, edits))
    assert "".join(piece.text for piece in pieces if piece.kind != "added") == text
