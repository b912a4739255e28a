"""Parallel text: a file of sentences with files of references beside it, or all of them in columns of one file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from copydesk.evaluation.corpus import DataError, Example, checked, examples_of, read_lines, read_text, split_lines


def read_parallel(source: Path, references: Sequence[Path]) -> tuple[Example, ...]:
    """Read sentences, one a line, and files of references whose lines belong to the lines of the first.

    Raises:
        DataError: A file cannot be read, a line is no sentence, or the files differ in length.
    """
    sources = read_lines(source)
    variants = []
    for path in references:
        lines = read_lines(path)
        if len(lines) != len(sources):
            number = min(len(lines), len(sources)) + 1
            raise DataError(path, number, f"{len(lines)} lines, but {source} has {len(sources)}")
        variants.append(lines)
    return examples_of(sources, variants)


def read_columns(path: Path) -> tuple[Example, ...]:
    """Read lines of a sentence and one or more references, with a tab between them; empty columns count for none.

    Raises:
        DataError: The file cannot be read, or a line has no sentence or no reference.
    """
    lines = split_lines(read_text(path))
    if not lines:
        raise DataError(path, 0, "is empty")
    return tuple(_row(path, number, line) for number, line in enumerate(lines, 1))


def _row(path: Path, number: int, line: str) -> Example:
    source, *targets = line.split("\t")
    references = tuple(checked(path, number, target) for target in targets if target.strip())
    if not references:
        raise DataError(path, number, "no reference: expected a sentence, a tab and its correction")
    return Example(checked(path, number, source), references)
