"""Text as the model sees it: every run of white space is one space.

White space is what `str.isspace` says it is: it takes in newlines, tabs, no-break and the other Unicode spaces,
and leaves out zero-width characters, which belong to the words they stand in.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_WORD = re.compile(r"\S+")


@dataclass(frozen=True, slots=True)
class Normalised:
    """A normalised text and where it came from.

    `offsets[i]` is where character `i` of `text` starts in the original. There is one more entry than there are
    characters, the end of the last one, so that the span `[a, b)` of `text` is `[offsets[a], offsets[b])` there.
    """

    text: str
    offsets: Sequence[int]


def normalise(text: str) -> str:
    """Strip `text` and turn every run of white space into one space."""
    return " ".join(text.split())


def normalise_with_offsets(text: str) -> Normalised:
    """Normalise `text`, keeping the way back to its offsets."""
    normalised = normalise(text)
    if normalised == text:
        return Normalised(text, range(len(text) + 1))
    offsets: list[int] = []
    end = 0
    for word in _WORD.finditer(text):
        if offsets:
            offsets.append(end)
        end = word.end()
        offsets.extend(range(word.start(), end))
    offsets.append(end)
    return Normalised(normalised, offsets)
