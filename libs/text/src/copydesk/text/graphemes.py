"""Where a text may be cut without tearing what a reader sees as one character."""

from __future__ import annotations

import regex

_ZERO_WIDTH_JOINER = "\u200d"
_CLUSTER = regex.compile(r"\X")


def is_cluster_boundary(text: str, position: int) -> bool:
    """Whether `text` may be cut at `position`.

    Looks at the two characters beside it only, so it says no to some places that would do, between two flags
    for one, and never yes to a place inside an extended grapheme cluster (Unicode Standard Annex 29).
    """
    if position <= 0 or position >= len(text):
        return True
    if text[position - 1] == _ZERO_WIDTH_JOINER:
        return False
    pair = text[position - 1 : position + 1]
    return pair.isascii() or _CLUSTER.fullmatch(pair) is None


def whole_clusters(text: str, start: int, limit: int) -> int:
    """Return the last cluster boundary in `text` at or before `start + limit`.

    `start` must be a boundary itself. A first cluster longer than `limit` comes whole, so the answer is always
    beyond `start`. Only a window of the text is scanned: a look at each of many flags in a row goes back over
    all those before it.
    """
    window = text[start : start + limit + 1]
    end = 0
    for cluster in _CLUSTER.finditer(window):
        if cluster.end() > limit:
            break
        end = cluster.end()
    if end:
        return start + end
    return int(_CLUSTER.match(text, start).end())
