"""A text with markup in it, which is neither read nor touched: the text that is corrected, and the way back."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from copydesk.text import Edit, widened


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of a document: text, or markup with what it is read as (`interpretAs`; by itself, as nothing)."""

    content: str
    is_markup: bool = False
    read_as: str = ""

    @property
    def plain(self) -> str:
        """What of it is read."""
        return self.read_as if self.is_markup else self.content


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a part is in the text that is read (`plain_start`, `plain_end`) and in the whole (`start`, `end`)."""

    plain_start: int
    plain_end: int
    start: int
    end: int
    is_markup: bool


class AnnotatedText:
    """A document: `whole` as the client has it, markup included, and `plain` as it is read and corrected."""

    def __init__(self, parts: Iterable[Part]) -> None:
        kept = list(_merged(parts))
        self.whole = "".join(part.content for part in kept)
        self.plain = "".join(part.plain for part in kept)
        self._places = list(_places(kept))
        self._texts = [place for place in self._places if not place.is_markup]
        self._text_starts = [place.plain_start for place in self._texts]
        self._text_ends = [place.plain_end for place in self._texts]

    @classmethod
    def without_markup(cls, text: str) -> AnnotatedText:
        """A document that is all text."""
        return cls([Part(text)])

    def placed(self, edits: Sequence[Edit]) -> list[Edit]:
        """Return the edits of `whole` that do what `edits` do to `plain`, visible ones (`copydesk.text.widened`).

        `edits` ascend and are disjoint, and so are those returned. Each stays within one stretch of text: one that
        reaches across markup is cut down to what it changes, and left out if that is on both sides of markup, or
        within what markup is read as.
        """
        inside: dict[int, list[Edit]] = {}
        for edit in edits:
            index = self._text_around(edit)
            if index is None:
                edit = _trimmed(self.plain, edit)
                index = self._text_around(edit)
            if index is not None:
                shift = self._texts[index].plain_start
                inside.setdefault(index, []).append(_moved(edit, -shift))
        return [edit for index, found in inside.items() for edit in self._placed_in(self._texts[index], found)]

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Return where the code points `[start, end)` of `plain` are in `whole`; at least one, `start < end`.

        A part of what markup is read as stands for all of that markup.
        """
        ends = [place.plain_end for place in self._places]
        first = self._places[bisect_right(ends, start)]
        last = self._places[bisect_left(ends, end)]
        return (
            first.start if first.is_markup else first.start + start - first.plain_start,
            last.end if last.is_markup else last.start + end - last.plain_start,
        )

    def _text_around(self, edit: Edit) -> int | None:
        """Return the stretch of text that `edit` lies in; of two that an insertion stands between, one."""
        left = bisect_left(self._text_ends, edit.end)
        right = bisect_right(self._text_starts, edit.start) - 1
        around = [index for index in sorted({left, right}) if self._covers(index, edit)]
        if len(around) < 2:
            return around[0] if around else None
        return around[1] if self.plain[edit.start - 1].isspace() else around[0]

    def _covers(self, index: int, edit: Edit) -> bool:
        if not 0 <= index < len(self._texts):
            return False
        place = self._texts[index]
        return place.plain_start <= edit.start and edit.end <= place.plain_end

    def _placed_in(self, place: _Place, edits: Sequence[Edit]) -> Iterator[Edit]:
        text = self.whole[place.start : place.end]
        for edit in widened(text, edits):
            yield _moved(edit, place.start)


def _merged(parts: Iterable[Part]) -> Iterator[Part]:
    """Yield the parts without empty ones, texts in a row as one."""
    texts: list[str] = []
    for part in parts:
        if not part.is_markup:
            texts.append(part.content)
            continue
        if not part.content and not part.read_as:
            continue
        if any(texts):
            yield Part("".join(texts))
        texts = []
        yield part
    if any(texts):
        yield Part("".join(texts))


def _places(parts: Iterable[Part]) -> Iterator[_Place]:
    plain = whole = 0
    for part in parts:
        plain_end, end = plain + len(part.plain), whole + len(part.content)
        yield _Place(plain, plain_end, whole, end, part.is_markup)
        plain, whole = plain_end, end


def _moved(edit: Edit, by: int) -> Edit:
    return Edit(edit.start + by, edit.end + by, edit.replacement)


def _trimmed(source: str, edit: Edit) -> Edit:
    """Return `edit` without the characters that its two sides begin and end with."""
    start, end, new = edit.start, edit.end, edit.replacement
    while start < end and new and source[start] == new[0]:
        start, new = start + 1, new[1:]
    while start < end and new and source[end - 1] == new[-1]:
        end, new = end - 1, new[:-1]
    return Edit(start, end, new)
