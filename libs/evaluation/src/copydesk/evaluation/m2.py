"""The M2 format: a tokenised sentence, and the edits of each annotator.

    S She go home .
    A 1 2|||R:VERB:SVA|||goes|||REQUIRED|||-NONE-|||0

An edit is over tokens, counted from 0. `noop` says that an annotator changed nothing, `UNK` that an error was seen
and left. Of several corrections of one edit, between `||`, the first counts (Dahlmeier and Ng, NAACL 2012). An
annotator of whom a sentence has no line was not asked about it; a sentence without any is right as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from copydesk.evaluation.corpus import DataError, Example, checked, read_text, split_lines

_FIELDS = 6
_UNCHANGED = frozenset({"noop", "UNK"})
_NOTHING = "-NONE-"
"""Written for an empty correction in older files."""


@dataclass(frozen=True, slots=True)
class _Annotation:
    """An edit on `line` of the file; `replacement` is None where nothing is changed."""

    line: int
    start: int
    end: int
    replacement: str | None
    annotator: str


def read_m2(path: Path) -> tuple[Example, ...]:
    """Read every sentence with one reference an annotator.

    Raises:
        DataError: The file cannot be read, is no M2, or has edits outside their sentence or over each other.
    """
    examples = tuple(_example(path, *block) for block in _blocks(path))
    if not examples:
        raise DataError(path, 0, "has no sentence")
    return examples


def _blocks(path: Path) -> Iterator[tuple[int, str, list[_Annotation]]]:
    """Yield each sentence with its line and its annotations."""
    first, source, annotations = 0, "", list[_Annotation]()
    for number, line in enumerate(split_lines(read_text(path)), 1):
        line = line.rstrip("\r")
        if line.startswith("S ") or line == "S":
            if first:
                yield first, source, annotations
            first, source, annotations = number, checked(path, number, line[2:]), []
        elif line.startswith("A "):
            if not first:
                raise DataError(path, number, "an edit before the first sentence")
            annotations.append(_annotation(path, number, line[2:], len(source.split())))
        elif line.strip():
            raise DataError(path, number, "expected a line that begins with S or A, or an empty one")
    if first:
        yield first, source, annotations


def _annotation(path: Path, number: int, text: str, tokens: int) -> _Annotation:
    fields = text.split("|||")
    if len(fields) != _FIELDS:
        raise DataError(path, number, f"{len(fields)} fields between |||, expected {_FIELDS}")
    span, kind, correction, _, _, annotator = fields
    if kind in _UNCHANGED:
        return _Annotation(number, 0, 0, None, annotator)
    try:
        start, end = map(int, span.split())
    except ValueError:
        raise DataError(path, number, f"{span[:40]!r} is no span, expected two numbers") from None
    if not 0 <= start <= end <= tokens:
        raise DataError(path, number, f"tokens {start} to {end} are not in a sentence of {tokens}")
    replacement = correction.split("||")[0]
    return _Annotation(number, start, end, "" if replacement == _NOTHING else replacement, annotator)


def _example(path: Path, number: int, source: str, annotations: Sequence[_Annotation]) -> Example:
    by_annotator: dict[str, list[_Annotation]] = {}
    for annotation in annotations:
        by_annotator.setdefault(annotation.annotator, []).append(annotation)
    tokens = source.split()
    references = tuple(_applied(path, number, tokens, edits) for edits in by_annotator.values())
    return Example(source, references or (source,))


def _applied(path: Path, number: int, tokens: Sequence[str], edits: Sequence[_Annotation]) -> str:
    words: list[str] = []
    done = 0
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        if edit.replacement is None:
            continue
        if edit.start < done:
            raise DataError(path, edit.line, "overlaps another edit of the same annotator")
        words += tokens[done : edit.start]
        words += edit.replacement.split()
        done = edit.end
    words += tokens[done:]
    if not words:
        raise DataError(path, number, "its edits leave nothing of the sentence")
    return checked(path, number, " ".join(words))
