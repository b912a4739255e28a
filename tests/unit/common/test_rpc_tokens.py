"""A fleet changes its token over without a moment in which two parts disagree."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.common.rpc.tokens import is_accepted, shown_token

tokens = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=20)


@given(tokens, tokens)
def test_every_step_of_a_change_finds_both_sides_agreed(old: str, new: str) -> None:
    both = f"{old}\n{new}\n"
    steps = [(old, old), (both, old), (both, f"{new}\n{old}"), (both, new), (new, new)]
    assert all(is_accepted(servers, shown_token(clients)) for servers, clients in steps)
    assert is_accepted(new, shown_token(old)) is (old == new)


@pytest.mark.parametrize(
    ("servers", "token", "accepted"),
    [
        ("", "", True),
        ("", "sesame", False),
        ("sesame", "", False),
        ("sesame\n\n", "", False),
        ("\nsesame\r\npoppy", "sesame", True),
        ("sesame", "sesame ", False),
        ("sesame\npoppy", "sesame\npoppy", False),
        ("sésame", "sésame", True),
    ],
)
def test_no_line_that_is_empty_is_a_token_where_there_is_one(servers: str, token: str, accepted: bool) -> None:
    assert is_accepted(servers, token) is accepted


def test_who_connects_shows_the_first() -> None:
    assert shown_token("\nnew\nold") == "new"
    assert shown_token("") == ""
