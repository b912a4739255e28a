"""Offsets in UTF-16 code units."""

from __future__ import annotations

from hypothesis import given

from copydesk.text import Utf16
from tests.unit.text.hard_texts import any_text


def units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


@given(any_text)
def test_every_position_is_where_the_encoded_text_says(text: str) -> None:
    offsets = Utf16(text)
    assert [offsets.unit(position) for position in range(len(text) + 1)] == [
        units(text[:position]) for position in range(len(text) + 1)
    ]
    assert offsets.length == units(text)


def test_an_emoji_is_two_units() -> None:
    assert [Utf16("a😀b").unit(position) for position in range(4)] == [0, 1, 3, 4]
