"""Edits between tokenised sentences, with their types: what precision and recall are counted over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from copydesk.text import edits, kind_of


@dataclass(frozen=True, slots=True)
class TypedEdit:
    """Replace [`start`, `end`) of a source by `replacement`; what is counted depends on who found the edit.

    A type begins with what is done, as ERRANT's do: `M:` something is missing, `U:` unnecessary, `R:` replaced.
    """

    start: int
    end: int
    replacement: str
    type: str

    @property
    def what(self) -> tuple[int, int, str]:
        """What makes two edits the same, whatever they are called."""
        return self.start, self.end, self.replacement


class Annotator(Protocol):
    """Who finds the edits. `name` goes into the result: figures of different annotators cannot be compared."""

    @property
    def name(self) -> str:
        """What it is called, with its version if it has one of its own."""
        ...

    def edits(self, source: str, targets: Sequence[str]) -> list[list[TypedEdit]]:
        """Find the edits from a tokenised source to each of some targets."""
        ...


class OwnAnnotator:
    """Edits as Copydesk's API gives them, by longest common subsequence, and typed by their kind.

    Coarser than ERRANT, which knows parts of speech: what it calls a verb form or a determiner is grammar here.
    """

    name = "Copydesk's own edit kinds"

    def edits(self, source: str, targets: Sequence[str]) -> list[list[TypedEdit]]:
        """Find the edits, in characters of the tokenised source."""
        return [_typed(source, target) for target in targets]


def _typed(source: str, target: str) -> list[TypedEdit]:
    found = []
    for edit in edits(source, target):
        old = source[edit.start : edit.end]
        kind = kind_of(old, edit.replacement)
        action = "M" if not old.strip() else "U" if not edit.replacement.strip() else "R"
        found.append(TypedEdit(edit.start, edit.end, edit.replacement, f"{action}:{kind.value}"))
    return found
