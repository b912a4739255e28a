"""Edits that can be seen: an editor underlines characters, so an edit must have some, and offer some instead.

An insertion replaces nothing, and a deletion offers nothing; each takes in the word or the mark beside it, which
stays as it is.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import regex

from copydesk.text.edit import Edit, apply

_TOKEN = regex.compile(r"\w[\w\p{M}]*(?:['\u2019]\w[\w\p{M}]*)*|(?!\s)\X")

Span = tuple[int, int]


def widened(source: str, edits: Sequence[Edit]) -> list[Edit]:
    """Return edits with the same result, ascending and disjoint, each of at least one character of `source`.

    `edits` ascend and are disjoint, as `diff.edits` returns them; those that come to overlap become one. Only in
    an empty source an insertion stays one, and only where nothing is beside it does a deletion offer nothing.
    """
    if not any(_is_unseen(source, edit) for edit in edits):
        return list(edits)
    tokens = _Tokens.of(source)
    groups: list[tuple[Span, list[Edit]]] = []
    for edit in edits:
        span = tokens.around(edit) if _is_unseen(source, edit) else (edit.start, edit.end)
        members = [edit]
        while groups and span[0] < groups[-1][0][1]:
            other, earlier = groups.pop()
            span, members = (min(span[0], other[0]), max(span[1], other[1])), earlier + members
        groups.append((span, members))
    return [_one(source, span, members) for span, members in groups]


def _is_unseen(source: str, edit: Edit) -> bool:
    return not edit.replacement.strip() or not source[edit.start : edit.end].strip()


def _one(source: str, span: Span, members: Sequence[Edit]) -> Edit:
    """Make one edit of `span` that does what `members` do."""
    start, end = span
    inner = [Edit(edit.start - start, edit.end - start, edit.replacement) for edit in members]
    return Edit(start, end, apply(source[start:end], inner))


@dataclass(frozen=True, slots=True)
class _Tokens:
    """Where the words and marks of a text are."""

    source: str
    starts: list[int]
    ends: list[int]

    @classmethod
    def of(cls, source: str) -> _Tokens:
        spans = [match.span() for match in _TOKEN.finditer(source)]
        return cls(source, [start for start, _ in spans], [end for _, end in spans])

    def around(self, edit: Edit) -> Span:
        """Return the span of `edit` with what it takes in: the rest of a word, else what stands beside it."""
        before = bisect_right(self.ends, edit.start) - 1
        after = bisect_left(self.starts, edit.end)
        start, end = edit.start, edit.end
        if before + 1 < after:
            start, end = min(start, self.starts[before + 1]), max(end, self.ends[after - 1])
        if (start, end) == (edit.start, edit.end):
            left, right = self._neighbours(edit, before, after)
            start, end = self.starts[before] if left else start, self.ends[after] if right else end
        if start == end:
            return max(0, start - 1), min(len(self.source), end + 1)
        return start, end

    def _neighbours(self, edit: Edit, before: int, after: int) -> tuple[bool, bool]:
        """Choose the token before, the one after, or both where white space goes or comes.

        What touches comes first, then a word before a mark, then the left before the right.
        """
        has_left, has_right = before >= 0, after < len(self.starts)
        old, new = self.source[edit.start : edit.end], edit.replacement
        between = not old.strip() and (old or not new.strip())
        if between or not (has_left and has_right):
            return has_left, has_right
        left = (self.ends[before] == edit.start, self._is_word(before))
        right = (self.starts[after] == edit.end, self._is_word(after))
        return left >= right, left < right

    def _is_word(self, index: int) -> bool:
        first = self.source[self.starts[index]]
        return first.isalnum() or first == "_"
