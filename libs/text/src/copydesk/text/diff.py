"""The edits that turn one text into another, as a reader would mark them: whole words, with their spaces."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate

import regex

from copydesk.text.alignment import common_pairs
from copydesk.text.edit import Edit

_TOKEN = regex.compile(r"(\w[\w\p{M}]*(?:['\u2019]\w[\w\p{M}]*)*|(?!\s)\X)")
_ASCII_TOKEN = re.compile(r"(\w+(?:'\w+)*|\S)", re.ASCII)
"""The same for ASCII, in half the time."""


@dataclass(frozen=True, slots=True)
class _Tokens:
    """The words and marks of a text, and the white space around them.

    `gaps[i]` stands before token `i`, and the last one behind all of them. `places` is where each gap and each
    token starts, in turn, and where the text ends.
    """

    source: str
    texts: list[str]
    gaps: list[str]
    places: list[int]

    @classmethod
    def of(cls, source: str) -> _Tokens:
        parts: list[str] = _ASCII_TOKEN.split(source) if source.isascii() else _TOKEN.split(source)
        return cls(source, parts[1::2], parts[::2], list(accumulate(map(len, parts), initial=0)))

    def span(self, index: int) -> tuple[int, int]:
        """The span of a token."""
        return self.places[2 * index + 1], self.places[2 * index + 2]

    def between(self, before: int, after: int) -> tuple[int, int]:
        """The span from the end of token `before` (-1: the start) to the start of token `after`."""
        return self.places[2 * before + 2], self.places[2 * after + 1]


def edits(source: str, target: str) -> list[Edit]:
    """Return ascending, disjoint edits with `apply(source, edits(source, target)) == target`.

    Words and punctuation marks are aligned by a longest common subsequence; what lies between two that are kept
    is one edit, less the white space both sides share: an inserted word brings one space, a deleted one takes
    one along. Where as many words are replaced as stand there, each is an edit of its own. Nearly linear for
    texts that are alike; two unrelated texts of 500 characters take about a millisecond.
    """
    if source == target:
        return []
    left, right = _Tokens.of(source), _Tokens.of(target)
    found: list[Edit] = []
    before_i, before_j = -1, -1
    for i, j in [*common_pairs(left.texts, right.texts), (len(left.texts), len(right.texts))]:
        if i - before_i > 1 or j - before_j > 1 or left.gaps[i] != right.gaps[j]:
            found += _region(left, right, (before_i, i), (before_j, j))
        before_i, before_j = i, j
    return found


def _region(left: _Tokens, right: _Tokens, lefts: tuple[int, int], rights: tuple[int, int]) -> Iterable[Edit]:
    """Return the edits between two kept tokens (or an end); the indices are those of the kept ones."""
    width = lefts[1] - lefts[0] - 1
    if width > 1 and width == rights[1] - rights[0] - 1:
        return _pairwise(left, right, lefts, rights)
    start, end = left.between(*lefts)
    first, last = right.between(*rights)
    return _trimmed(left.source, start, end, right.source[first:last])


def _pairwise(left: _Tokens, right: _Tokens, lefts: tuple[int, int], rights: tuple[int, int]) -> Iterator[Edit]:
    """Yield one edit a token, and one for white space that differs before or after it."""
    shift = rights[0] - lefts[0]
    for index in range(lefts[0], lefts[1]):
        if index > lefts[0]:
            text = right.texts[index + shift]
            if left.texts[index] != text:
                yield Edit(*left.span(index), text)
        yield from _trimmed(left.source, *left.between(index, index + 1), right.gaps[index + shift + 1])


def _trimmed(source: str, start: int, end: int, replacement: str) -> tuple[Edit, ...]:
    """Return the edit without the white space that both sides begin or end with, if anything is left."""
    first, last = 0, len(replacement)
    while start < end and first < last and source[start] == replacement[first] and source[start].isspace():
        start, first = start + 1, first + 1
    while start < end and first < last and source[end - 1] == replacement[last - 1] and source[end - 1].isspace():
        end, last = end - 1, last - 1
    return (Edit(start, end, replacement[first:last]),) if start < end or first < last else ()
