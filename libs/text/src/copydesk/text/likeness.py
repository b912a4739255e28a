"""How alike two texts are, word by word: the guard against an answer that is no correction."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from copydesk.text.alignment import common_length, common_pairs

_WORD = re.compile(r"\w+(?:['\u2019]\w+)*")


def similarity(source: str, target: str) -> float:
    """Return the share of words in common, 0 to 1: twice the matched words over all words of both sides.

    Case and punctuation do not count. Words that are equal match whole; between those, words are aligned so
    that the sum is greatest, where a word matches one or two others ("alot", "a lot") by the share of
    characters they have in common (longest common subsequence), if that is at least one half. So "Helo" and
    "Hello" are .89 alike, although they have no word in common, while characters alone would find half of any
    two English sentences alike. Texts without words are compared by their characters.
    """
    left, right = (_words(text) for text in (source, target))
    if not left or not right:
        return _ratio(source.strip(), target.strip())
    matched = 0.0
    i, j = -1, -1
    for next_i, next_j in [*common_pairs(left, right), (len(left), len(right))]:
        matched += _aligned(left[i + 1 : next_i], right[j + 1 : next_j])
        matched += 2.0 * (next_i < len(left))
        i, j = next_i, next_j
    return matched / (len(left) + len(right))


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold().replace("\u2019", "'"))


def _aligned(left: Sequence[str], right: Sequence[str]) -> float:
    """Return the greatest number of words on both sides together that an alignment can match."""
    if not left or not right:
        return 0.0
    rows = [[0.0] * (len(right) + 1) for _ in range(len(left) + 1)]
    for i in range(1, len(left) + 1):
        for j in range(1, len(right) + 1):
            rows[i][j] = max(rows[i - 1][j], rows[i][j - 1], _best_match(rows, left, right, i, j))
    return rows[-1][-1]


def _best_match(rows: list[list[float]], left: Sequence[str], right: Sequence[str], i: int, j: int) -> float:
    best = rows[i - 1][j - 1] + 2 * _likeness(left[i - 1], right[j - 1])
    if i > 1:
        best = max(best, rows[i - 2][j - 1] + 3 * _likeness(left[i - 2] + left[i - 1], right[j - 1]))
    if j > 1:
        best = max(best, rows[i - 1][j - 2] + 3 * _likeness(left[i - 1], right[j - 2] + right[j - 1]))
    return best


@lru_cache(maxsize=4096)
def _likeness(left: str, right: str) -> float:
    """Return the share of characters in common, or 0 where it is below one half."""
    if 3 * min(len(left), len(right)) < max(len(left), len(right)):
        return 0.0
    ratio = _ratio(left, right)
    return ratio if ratio >= 0.5 else 0.0


def _ratio(left: str, right: str) -> float:
    total = len(left) + len(right)
    return 2.0 * common_length(left, right) / total if total else 1.0
