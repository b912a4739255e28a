"""Normalised white space and the way back from it."""

from __future__ import annotations

from hypothesis import given

from copydesk.text.whitespace import normalise_with_offsets
from tests.unit.text.hard_texts import any_text


@given(any_text)
def test_every_character_leads_back_to_where_it_came_from(text: str) -> None:
    normalised = normalise_with_offsets(text)
    assert normalised.text == " ".join(text.split())
    assert len(normalised.offsets) == len(normalised.text) + 1
    for index, character in enumerate(normalised.text):
        origin = text[normalised.offsets[index] : normalised.offsets[index + 1]]
        assert origin == character or (character == " " and origin.isspace())
