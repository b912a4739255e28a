"""Penn Treebank tokens to text and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.text.treebank import looks_tokenised, to_plain, to_tokens

PAIRS = [
    ("I do n't know , but it 's fine .", "I don't know, but it's fine."),
    ('He said " yes " and left .', 'He said "yes" and left.'),
    ("They paid $ 1,000 ( in cash ) .", "They paid $1,000 (in cash)."),
    ("Who 's there ?", "Who's there?"),
]


@pytest.mark.parametrize(("tokens", "text"), PAIRS)
def test_tokens_are_joined_as_people_write(tokens: str, text: str) -> None:
    assert to_plain(tokens) == text


@pytest.mark.parametrize(
    "text", ["I don't know, but it's fine.", "Who's there?", "We won't, can't and shouldn't."]
)
def test_text_that_is_cut_and_joined_is_what_it_was(text: str) -> None:
    assert to_plain(to_tokens(text)) == text


@given(st.text())
def test_any_text_is_cut_into_tokens_between_single_spaces(text: str) -> None:
    tokens = to_tokens(text)
    assert tokens == " ".join(tokens.split())


def test_tokenised_lines_are_told_from_text() -> None:
    assert looks_tokenised(tokens for tokens, _ in PAIRS)
    assert not looks_tokenised(text for _, text in PAIRS)
    assert not looks_tokenised(["no marks at all", ""])
