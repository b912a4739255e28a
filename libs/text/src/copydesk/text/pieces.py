"""Cutting a sentence that is too long for the model."""

from __future__ import annotations

from collections.abc import Iterator

from copydesk.text.graphemes import is_cluster_boundary, whole_clusters

_CLAUSE_ENDS = frozenset(',;:.!?)"\u2019\u201d\u2026\u2013\u2014\u060c\u061b\u061f\u0964')
_WIDE_CLAUSE_ENDS = frozenset("\u3001\u3002\uff0c\uff1b\uff1a\uff01\uff1f")


def pieces(text: str, start: int, end: int, limit: int) -> Iterator[tuple[int, int]]:
    """Cut `[start, end)` of a normalised text into spans of at most `limit` characters, without outer spaces.

    A cut comes after the last clause punctuation in the second half of what fits (in the first half it would
    leave a stub), else at the last space, else between two grapheme clusters. A cluster that is itself longer
    than `limit` stays whole.
    """
    while True:
        while start < end and text[start] == " ":
            start += 1
        if end - start <= limit:
            break
        cut = _cut(text, start, min(limit, end - start - 1))
        yield start, cut - (text[cut - 1] == " ")
        start = cut
    if start < end:
        yield start, end - (text[end - 1] == " ")


def _cut(text: str, start: int, limit: int) -> int:
    """Return where to cut a text that goes on beyond `start + limit`."""
    for position in range(start + limit, start + limit // 2, -1):
        if _is_clause_end(text, position) and is_cluster_boundary(text, position):
            return position
    position = start + limit + 1
    while (position := text.rfind(" ", start + 1, position)) > start:
        if is_cluster_boundary(text, position + 1):
            return position
    return whole_clusters(text, start, limit)


def _is_clause_end(text: str, position: int) -> bool:
    """Whether clause punctuation stands before `position`, and a space after it where the script uses spaces."""
    last = text[position - 1]
    return last in _WIDE_CLAUSE_ENDS or (last in _CLAUSE_ENDS and text[position] == " ")
