"""Sentences, each with its place in the text and the form in which the model gets it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import sentencex

from copydesk.text.blocks import Block, blocks
from copydesk.text.graphemes import is_cluster_boundary
from copydesk.text.pieces import pieces
from copydesk.text.whitespace import normalise_with_offsets

_ADDRESS = re.compile(
    r"[<(\[]?(?:(?:https?|ftp|mailto)://?\S+|(?:mailto:)?[^\s@]+@[^\s@.]+(?:\.[^\s@.]+)+|www\.\S+)[>)\]]?[.,;:!?]?",
    re.IGNORECASE,
)
_SURROGATE = re.compile(r"[\ud800-\udfff]")

WINDOW_CHARACTERS = 1000
"""How much of a block sentencex is shown at once: its time grows with the square of what it sees, and 20,000
hostile characters take it a second. Sentences are shorter, so that this changes nothing for any other text."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A sentence: the code points `[start, end)` of the input, and its `text`, stripped, on one line.

    `correctable` is false where a model has nothing to do: no letter in it, an address standing alone, the mark
    of a list item, or a single grapheme cluster longer than the limit.
    """

    start: int
    end: int
    text: str
    correctable: bool = True


def segment(text: str, *, max_characters: int = 500) -> list[Segment]:
    """Cut `text` into sentences of at most `max_characters` characters, in order.

    Every character that is no white space is in exactly one segment; no segment begins or ends with white
    space. Blank lines always end a sentence, single newlines unless they are soft wraps (`blocks.is_soft_wrap`),
    and within a block of lines the sentencex library decides. No cut falls inside a grapheme cluster. The time
    grows linearly with the text.
    """
    return list(segments(text, max_characters=max_characters))


def segments(text: str, *, max_characters: int = 500) -> Iterator[Segment]:
    """Yield what `segment` returns, one by one: a step takes a few milliseconds at most, whatever the text."""
    if max_characters < 1:
        raise ValueError(f"max_characters is {max_characters}, expected at least 1")
    for block in blocks(text):
        yield from _segments(text, block, max_characters)


def _segments(text: str, block: Block, limit: int) -> Iterator[Segment]:
    marker = normalise_with_offsets(text[block.start : block.body])
    for first, last in pieces(marker.text, 0, len(marker.text), limit):
        start, end = marker.offsets[first], marker.offsets[last]
        yield Segment(block.start + start, block.start + end, marker.text[first:last], correctable=False)
    body = normalise_with_offsets(text[block.body : block.end])
    begin = 0
    for boundary in _boundaries(body.text):
        for first, last in pieces(body.text, begin, boundary, limit):
            sentence = body.text[first:last]
            start, end = body.offsets[first], body.offsets[last]
            yield Segment(block.body + start, block.body + end, sentence, _is_correctable(sentence, limit))
        begin = boundary


def _boundaries(text: str) -> Iterator[int]:
    """Yield where each sentence of a normalised block ends, the end of the block last.

    A window that does not reach the end may cut its last sentence short, so that one is looked at again, in the
    next window; and each window is at least half beyond the one before, whatever stands there.
    """
    shown = _SURROGATE.sub("\ufffd", text)
    start = 0
    while start + WINDOW_CHARACTERS < len(text):
        last = start
        for position in _ends(shown, start, start + WINDOW_CHARACTERS):
            yield position
            last = position
        start = max(last, start + WINDOW_CHARACTERS // 2)
    yield from _ends(shown, start, len(text))
    yield len(text)


def _ends(shown: str, start: int, end: int) -> Iterator[int]:
    """Yield where each sentence of `[start, end)` but the last ends.

    sentencex reports pieces and offsets; neither is taken on trust. A piece counts only while the text goes on
    with it, and a boundary only between two grapheme clusters. It takes no lone surrogates.
    """
    position = start
    for piece in sentencex.segment("en", shown[start:end]):
        if not piece or not shown.startswith(piece, position):
            break
        position += len(piece)
        if position < end and is_cluster_boundary(shown, position):
            yield position


def _is_correctable(sentence: str, limit: int) -> bool:
    return len(sentence) <= limit and any(map(str.isalpha, sentence)) and _ADDRESS.fullmatch(sentence) is None
