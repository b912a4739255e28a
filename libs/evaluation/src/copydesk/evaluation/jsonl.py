"""JSON lines: `{"source": "...", "references": ["...", ...]}`; other keys are left alone."""

from __future__ import annotations

from pathlib import Path

import msgspec

from copydesk.evaluation.corpus import DataError, Example, checked, read_text, split_lines


class _Row(msgspec.Struct, frozen=True):
    source: str
    references: list[str]


def read_jsonl(path: Path) -> tuple[Example, ...]:
    """Read one example a line; empty lines are passed over.

    Raises:
        DataError: The file cannot be read, or a line is no example.
    """
    decoder = msgspec.json.Decoder(_Row)
    examples = []
    for number, line in enumerate(split_lines(read_text(path)), 1):
        if line.strip():
            examples.append(_example(path, number, line, decoder))
    if not examples:
        raise DataError(path, 0, "has no example")
    return tuple(examples)


def _example(path: Path, number: int, line: str, decoder: msgspec.json.Decoder[_Row]) -> Example:
    try:
        row = decoder.decode(line)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise DataError(path, number, str(error)) from error
    if not row.references:
        raise DataError(path, number, "references is empty, expected at least one")
    references = tuple(checked(path, number, reference) for reference in row.references)
    return Example(checked(path, number, row.source), references)
