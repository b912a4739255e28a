"""An edit, and what it means to apply some."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from copydesk.common.errors import CopydeskError


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace the code points `[start, end)` of a source by `replacement`; `start == end` inserts."""

    start: int
    end: int
    replacement: str


class EditError(CopydeskError):
    """An edit that cannot be applied: it carries the `edit`."""

    def __init__(self, edit: Edit, message: str) -> None:
        self.edit = edit
        super().__init__(message)


class EditOutOfRangeError(EditError):
    """An edit that reaches outside its source, or ends before it starts; `length` is that of the source."""

    def __init__(self, edit: Edit, length: int) -> None:
        self.length = length
        super().__init__(edit, f"edit [{edit.start}, {edit.end}) is no span of a source of {length} characters")


class OverlappingEditsError(EditError):
    """Two edits that want the same characters: `edit` starts before `previous` ends."""

    def __init__(self, previous: Edit, edit: Edit) -> None:
        self.previous = previous
        super().__init__(edit, f"edit [{edit.start}, {edit.end}) overlaps edit [{previous.start}, {previous.end})")


def apply(source: str, edits: Iterable[Edit]) -> str:
    """Apply `edits`, given in any order, to `source`; insertions at one place keep the order they come in.

    Raises:
        EditOutOfRangeError: an edit is no span of `source`.
        OverlappingEditsError: two edits share a character, or one inserts inside what another replaces.
    """
    parts: list[str] = []
    done = 0
    previous: Edit | None = None
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        if not 0 <= edit.start <= edit.end <= len(source):
            raise EditOutOfRangeError(edit, len(source))
        if previous is not None and edit.start < done:
            raise OverlappingEditsError(previous, edit)
        parts += (source[done : edit.start], edit.replacement)
        done = edit.end
        previous = edit
    parts.append(source[done:])
    return "".join(parts)
