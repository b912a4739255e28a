"""From files to a corpus: which format it is, and whether it is in tokens."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path

from copydesk.evaluation.corpus import Corpus, DataError, Example, read_lines, read_text, split_lines
from copydesk.evaluation.jsonl import read_jsonl
from copydesk.evaluation.m2 import read_m2
from copydesk.evaluation.parallel import read_columns, read_parallel
from copydesk.text.treebank import looks_tokenised, to_plain

_LOOKED_AT = 200
"""Lines, from the first on, by which content is judged."""


class Format(enum.StrEnum):
    """How a file holds sentences and references."""

    AUTO = "auto"
    PLAIN = "plain"
    TSV = "tsv"
    M2 = "m2"
    JSONL = "jsonl"


_ENDINGS = {".m2": Format.M2, ".jsonl": Format.JSONL, ".ndjson": Format.JSONL, ".tsv": Format.TSV}


@dataclass(frozen=True, slots=True)
class Source:
    """Where a corpus is.

    `references` are files parallel to `data`, for plain text alone; `clean` is a file of sentences that need no
    correction. `tokenised` None finds out.
    """

    data: Path
    references: tuple[Path, ...] = ()
    clean: Path | None = None
    format: Format = Format.AUTO
    tokenised: bool | None = None


def read_corpus(source: Source) -> Corpus:
    """Read the corpus.

    Raises:
        DataError: It cannot be read; the message names file and line.
    """
    found = _format(source)
    if (found is Format.PLAIN) != bool(source.references):
        reason = "plain text needs files of references" if found is Format.PLAIN else f"{found} has its references"
        raise DataError(source.data, 0, f"{reason}; --references is for plain text, one or more files")
    examples = _READERS[found](source.data) if found in _READERS else read_parallel(source.data, source.references)
    tokenised = source.tokenised
    if tokenised is None:
        tokenised = found is Format.M2 or _is_tokenised(examples)
    clean = read_clean(source.clean) if source.clean else ()
    return Corpus(source.data.name, examples, tokenised, clean)


def read_clean(path: Path) -> tuple[str, ...]:
    """Read sentences that need no correction, one a line; those in tokens are joined.

    Raises:
        DataError: The file cannot be read, or a line is no sentence.
    """
    lines = read_lines(path)
    return tuple(to_plain(line) for line in lines) if looks_tokenised(lines[:_LOOKED_AT]) else tuple(lines)


def own_corpus(limit: int | None = None) -> Corpus:
    """The evaluation set that comes with Copydesk, or its first sentences.

    Errors as learners make them, and sentences without any. The first correction of each error is asked about as
    well: it is right, and should be left alone. That makes twice as many clean sentences, of the same kinds.
    """
    with as_file(files("copydesk.evaluation") / "data" / "english.jsonl") as path:
        examples = read_jsonl(path)[:limit]
    clean = tuple(example.references[0] for example in examples if not example.is_clean)
    return Corpus("english.jsonl (Copydesk's own)", examples, clean=clean)


_READERS = {Format.TSV: read_columns, Format.M2: read_m2, Format.JSONL: read_jsonl}


def _format(source: Source) -> Format:
    if source.format is not Format.AUTO:
        return source.format
    if source.references:
        return Format.PLAIN
    by_name = _ENDINGS.get(source.data.suffix.lower())
    return by_name or _by_content(source.data)


def _by_content(path: Path) -> Format:
    if path.exists() and not path.is_file() and not path.is_dir():
        raise DataError(
            path, 0, "is no ordinary file, and can be read once only: say how it is written by --format"
        )
    lines = [line for line in split_lines(read_text(path))[:_LOOKED_AT] if line.strip()]
    if not lines:
        raise DataError(path, 0, "is empty")
    if lines[0].startswith("S ") and any(line.startswith("A ") for line in lines):
        return Format.M2
    if lines[0].lstrip().startswith("{"):
        return Format.JSONL
    return Format.TSV if all("\t" in line for line in lines) else Format.PLAIN


def _is_tokenised(examples: Sequence[Example]) -> bool:
    return looks_tokenised(text for one in examples[:_LOOKED_AT] for text in (one.source, *one.references))
