"""Show the edits of a correction inside its text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

Kind = Literal["kept", "removed", "added"]


class EditLike(Protocol):
    """An edit: replace [`start`, `end`) of the text, in code points, by `replacement`."""

    @property
    def start(self) -> int:
        """First code point that goes."""
        ...

    @property
    def end(self) -> int:
        """First code point after it that stays."""
        ...

    @property
    def replacement(self) -> str:
        """What comes instead."""
        ...


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of text and what happened to it."""

    kind: Kind
    text: str


def spans(text: str, edits: Sequence[EditLike]) -> Iterator[Span]:
    """Walk through a text: what stayed, what went, what came, in reading order."""
    at = 0
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        yield from _span("kept", text[at : edit.start])
        yield from _span("removed", text[edit.start : edit.end])
        yield from _span("added", edit.replacement)
        at = edit.end
    yield from _span("kept", text[at:])


def marked(pieces: Iterable[Span], *, colour: bool) -> str:
    """Write spans as one string: in red and green, or as `[-removed-]{+added+}`, like `git diff --word-diff`."""
    return "".join(_marked(piece, colour) for piece in pieces)


def _span(kind: Kind, text: str) -> Iterator[Span]:
    if text:
        yield Span(kind, text)


def _marked(piece: Span, colour: bool) -> str:
    if piece.kind == "kept":
        return piece.text
    if colour:
        return f"\x1b[9;31m{piece.text}\x1b[0m" if piece.kind == "removed" else f"\x1b[1;32m{piece.text}\x1b[0m"
    return f"[-{piece.text}-]" if piece.kind == "removed" else f"{{+{piece.text}+}}"
