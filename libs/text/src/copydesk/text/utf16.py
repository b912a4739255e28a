"""Offsets as JavaScript and Java count them: in UTF-16 code units, where an emoji is two."""

from __future__ import annotations

from bisect import bisect_left

_LAST_OF_ONE_UNIT = "\uffff"


class Utf16:
    """The UTF-16 offsets of one text. A lone surrogate counts as one unit, as it does there."""

    __slots__ = ("_wide", "length")

    def __init__(self, text: str) -> None:
        self._wide = (
            []
            if text.isascii()
            else [index for index, character in enumerate(text) if character > _LAST_OF_ONE_UNIT]
        )
        self.length = len(text) + len(self._wide)

    def unit(self, position: int) -> int:
        """Return the code units before the code point at `position`, which may be the end of the text."""
        return position + bisect_left(self._wide, position)
