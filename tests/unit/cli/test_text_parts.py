"""Cutting long text into requests."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.cli.parts import InvalidInputError, decode, find_cut, split

TEXT = st.text(alphabet=st.sampled_from("ab. \n\r\t\u00e9\U0001f600"), max_size=200)


@given(st.lists(TEXT, max_size=8), st.integers(1, 40))
def test_parts_are_within_the_limit_and_join_to_the_text(blocks: list[str], limit: int) -> None:
    parts = list(split(blocks, limit))
    assert "".join(parts) == "".join(blocks)
    assert all(0 < len(part) <= limit for part in parts)


@given(TEXT, st.integers(1, 7))
def test_utf8_may_be_cut_anywhere(text: str, size: int) -> None:
    data = text.encode()
    blocks = [data[at : at + size] for at in range(0, len(data), size)]
    assert "".join(decode(blocks)) == text


@pytest.mark.parametrize(
    ("blocks", "offset"),
    [([b"ok \xff"], 3), ([b"caf\xc3", b"x"], 3), ([b"abc", b"\xe2\x82"], 3), ([b"ab", b"cd\xe2", b"\x82"], 4)],
)
def test_what_is_not_utf8_is_refused_with_its_offset(blocks: list[bytes], offset: int) -> None:
    with pytest.raises(InvalidInputError) as caught:
        list(decode(blocks))
    assert caught.value.offset == offset


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("One and two.\n\nThree. Four five", "One and two.\n\n"),
        ("one two three\nfour five six", "one two three\n"),
        ("One two three. Four five six", "One two three. "),
        ("one two three four five", "one two three four "),
        ("a" * 30, "a" * 20),
    ],
)
def test_the_cut_is_where_a_sentence_likely_ends(text: str, first: str) -> None:
    assert text[: find_cut(text, 20)] == first


def test_an_early_empty_line_does_not_make_a_tiny_part() -> None:
    text = "a\n\nlong sentence. and more"
    assert text[: find_cut(text, 20)] == "a\n\nlong sentence. "


def test_crlf_stays_together() -> None:
    assert list(split(["abc\r\ndef\r\n"], 6)) == ["abc\r\n", "def\r\n"]
