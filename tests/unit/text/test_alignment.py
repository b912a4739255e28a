"""The bit-parallel longest common subsequence, against the textbook one."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.text import alignment
from copydesk.text.alignment import common_length, common_pairs

letters = st.text(alphabet="abc", max_size=24)


def textbook_length(left: str, right: str) -> int:
    row = [0] * (len(right) + 1)
    for a in left:
        diagonal = 0
        for j, b in enumerate(right, 1):
            diagonal, row[j] = row[j], diagonal + 1 if a == b else max(row[j], row[j - 1])
    return row[-1]


@given(letters, letters)
def test_the_length_is_that_of_the_textbook(left: str, right: str) -> None:
    assert common_length(left, right) == textbook_length(left, right)


@given(letters, letters)
def test_the_pairs_ascend_match_and_are_as_many_as_can_be(left: str, right: str) -> None:
    pairs = common_pairs(left, right)
    assert all(left[i] == right[j] for i, j in pairs)
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in itertools.pairwise(pairs))
    assert len(pairs) == textbook_length(left, right)


def textbook_pairs(left: str, right: str) -> list[tuple[int, int]]:
    """Of all pairs that are as many as can be, those furthest to the left, from the end: left before right."""
    lengths = [[textbook_length(left[:i], right[:j]) for j in range(len(right) + 1)] for i in range(len(left) + 1)]
    pairs: list[tuple[int, int]] = []
    i, j = len(left), len(right)
    while i and j:
        if lengths[i][j] == lengths[i - 1][j]:
            i -= 1
        elif lengths[i][j] == lengths[i][j - 1]:
            j -= 1
        else:
            i, j = i - 1, j - 1
            pairs.append((i, j))
    return pairs[::-1]


@given(letters.map("x{}z".format), letters.map("y{}w".format))
def test_of_many_ways_to_pair_the_textbook_walk_is_taken(left: str, right: str) -> None:
    assert common_pairs(left, right) == textbook_pairs(left, right)


def test_beyond_the_limit_only_the_ends_are_paired(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alignment, "MAX_CELLS", 8)
    assert common_pairs("axbxc", "aybxyc") == [(0, 0), (4, 5)]
