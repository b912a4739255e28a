"""Runs of lines that belong together: what stands between two line ends that also end a sentence.

A line end may be a break that the author meant, or a soft wrap that an editor or mail program put into the
middle of a sentence. The text alone does not say which, so `is_soft_wrap` guesses, and leans towards a break:
the model corrects half a sentence tolerably, while two unrelated lines glued together get a comma or worse.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

WRAPPED_LINE_CHARACTERS = range(60, 101)
"""A line of such a length that stops without punctuation was wrapped: editors and mail programs wrap at 65 to
100 columns. What is shorter is mostly a title, an item or a chat message; what is longer was never wrapped."""

_MARKER = re.compile(
    r"\s*(?:(?:[-*+>\u2010-\u2015\u2022\u2023\u2043\u25aa\u25cf\u25e6\u00b7]|\#{1,6}|\[[ xX]\]"
    r"|\(?(?:\d{1,3}|[a-z]|[ivx]{2,4})\)|\d{1,3}\.)\s+)+(?=\S)"
)
_CODE = re.compile(
    r"^(?:```|~~~|\||\$ |>>> |#!|//|/\*|</?\w"
    r"|(?:import|#include) \S+$|from [\w.]+ import |(?:const|let|var|return)\b.*(?: = |[({\[]$))"
    r"|[{};]$|[\w)]\(\)|\):$|[=!<>]=|=>|->|::|&&|\|\|"
)
_LABEL = re.compile(r"^[\w-]+:(?:\s|$)")
_LOWER_START = re.compile(r"^[\"'\u2018\u201c\u00ab(\[]{0,3}[^\W\d_]")
_TEXT_START = re.compile(r"^[\"'\u2018\u201c\u00ab(\[]{0,3}\w")
_CLOSERS = "\"'\u2019\u201d\u00bb)]}*_"
_ENDINGS = ".!?:\u2026\u3002\uff01\uff1f\uff1a\u061f\u06d4\u0964\u0965"


@dataclass(frozen=True, slots=True)
class Block:
    """A stretch of text in which only punctuation ends a sentence.

    `start` to `body` holds the mark of a list item, heading or quotation that opens the block, if any, and the
    white space around it; `body` to `end` the sentences.
    """

    start: int
    body: int
    end: int


def blocks(text: str) -> Iterator[Block]:
    """Yield the blocks of `text` in order; lines without any character in them are in none."""
    start = offset = 0
    previous = ""
    for line in text.splitlines(keepends=True):
        stripped = line.strip()
        if previous and not is_soft_wrap(previous, stripped):
            yield _block(text, start, offset)
            previous = ""
        if not previous:
            start = offset
        previous = stripped
        offset += len(line)
    if previous:
        yield _block(text, start, offset)


def is_soft_wrap(line: str, following: str) -> bool:
    """Whether the sentence in `line` goes on in the `following` one; both come stripped.

    It does not when either is blank, looks like code or a table row, or has no letter; when `following` opens
    with the mark of a list item, heading or quotation, or with a label ("note: ..."); or when `line` is a
    heading, a single word (such lines are lists), or ends a sentence. Of what is left, it does when `following`
    starts in lower case, or when `line` is as long as wrapped lines are.
    """
    if not (_is_prose(line) and _is_prose(following)):
        return False
    if _MARKER.match(following) or _LABEL.match(following):
        return False
    if line.startswith("#") or len(line.split(None, 1)) < 2:
        return False
    if line.rstrip(_CLOSERS)[-1:] in _ENDINGS:
        return False
    if (first := _LOWER_START.match(following)) is not None and first.group()[-1].islower():
        return True
    return len(line) in WRAPPED_LINE_CHARACTERS and _TEXT_START.match(following) is not None


def _is_prose(line: str) -> bool:
    return any(map(str.isalpha, line)) and _CODE.search(line) is None


def _block(text: str, start: int, end: int) -> Block:
    marker = _MARKER.match(text, start, end)
    return Block(start, start if marker is None else marker.end(), end)
