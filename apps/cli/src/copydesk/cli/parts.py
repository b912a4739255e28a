"""Cut a text of any length into requests of a bounded size, at places where a sentence is likely to end."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator

PART_CHARS = 2_000
"""Far below the API's limit on a text, so that several parts can be corrected side by side and progress shows."""

# The best places first: after an empty line, after a line, after the end of a sentence, between words.
_CUTS = tuple(re.compile(pattern) for pattern in (r"\n[ \t\r]*\n", r"\n", r"[.!?][\"')\]]*\s", r"\s"))


class InvalidInputError(ValueError):
    """The input is not UTF-8: `offset` is the first byte that does not fit."""

    def __init__(self, offset: int) -> None:
        self.offset = offset
        super().__init__(f"the input is not UTF-8 text: byte {offset} does not fit; convert it first (see iconv)")


def decode(blocks: Iterable[bytes]) -> Iterator[str]:
    """Decode UTF-8 that comes in blocks cut anywhere; raises `InvalidInputError`."""
    decoder = codecs.getincrementaldecoder("utf-8")("strict")
    consumed = 0
    for block in blocks:
        pending = len(decoder.getstate()[0])
        try:
            yield decoder.decode(block)
        except UnicodeDecodeError as error:
            raise InvalidInputError(consumed - pending + error.start) from None
        consumed += len(block)
    if pending := len(decoder.getstate()[0]):
        raise InvalidInputError(consumed - pending)


def split(blocks: Iterable[str], limit: int = PART_CHARS) -> Iterator[str]:
    """Regroup text into parts of at most `limit` characters; joined together they are the text."""
    rest = ""
    for block in blocks:
        rest += block
        while len(rest) > limit:
            cut = find_cut(rest, limit)
            yield rest[:cut]
            rest = rest[cut:]
    if rest:
        yield rest


def find_cut(text: str, limit: int) -> int:
    """Choose where to cut a text that is longer than `limit`: between 1 and `limit`.

    The last place of the best kind in the second half wins; an early empty line is not worth a tiny part.
    """
    for floor in (limit // 2, 0):
        for pattern in _CUTS:
            ends = [match.end() for match in pattern.finditer(text, 0, limit) if match.end() > floor]
            if ends:
                return ends[-1]
    return limit
