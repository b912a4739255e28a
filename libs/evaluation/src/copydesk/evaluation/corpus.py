"""What an evaluation is made on: sentences, and how each may be corrected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from copydesk.common.errors import CopydeskError
from copydesk.text.treebank import to_plain, to_tokens

MOST_CHARACTERS = 10_000
"""Of a line. What is longer is no sentence, and costs the square of its length to compare."""

MOST_BYTES = 256 << 20
"""Of a file: some million sentences, which would take weeks to correct."""


class DataError(CopydeskError):
    """Data that cannot be used: the file in `path`, the number of the `line` (0: the file as a whole), and why."""

    exit_code = 2

    def __init__(self, path: Path, line: int, reason: str) -> None:
        self.path = path
        self.line = line
        self.reason = reason
        super().__init__(f"{path}:{line}: {reason}" if line else f"{path}: {reason}")


@dataclass(frozen=True, slots=True)
class Example:
    """A sentence, and all corrections of it that count as right; one that needs none has itself for reference."""

    source: str
    references: tuple[str, ...]

    @property
    def is_clean(self) -> bool:
        """Whether nothing is to be corrected, whoever is asked."""
        return all(reference == self.source for reference in self.references)


@dataclass(frozen=True, slots=True)
class Corpus:
    """Examples, all in plain text or all in Penn Treebank tokens with a space between them.

    `clean` are further sentences that are right as they are, for which over-correction is counted and nothing
    else; these are always plain.
    """

    name: str
    examples: tuple[Example, ...]
    tokenised: bool = False
    clean: tuple[str, ...] = ()

    def text(self, line: str) -> str:
        """A line of this corpus as plain text, which is what a model is asked about."""
        return to_plain(line) if self.tokenised else line

    def tokens(self, line: str) -> str:
        """A line of this corpus in tokens, which is what is scored."""
        return line if self.tokenised else to_tokens(line)

    def answer(self, line: str, text: str) -> str:
        """A model's answer to a line, written like the corpus: where nothing was changed, the line itself.

        For joining and cutting a text again may change it, and the model is not to blame for that.
        """
        if not self.tokenised:
            return text
        return line if text == to_plain(line) else to_tokens(text) or line

    def first(self, count: int | None) -> Corpus:
        """The first `count` examples, and as many of the further clean sentences; all for None."""
        return Corpus(self.name, self.examples[:count], self.tokenised, self.clean[:count])


def one_line(text: str) -> str:
    """Text with every run of white space made one space: models take a line at a time."""
    return " ".join(text.split())


def read_text(path: Path) -> str:
    """Read a file in UTF-8, with or without a byte order mark.

    Raises:
        DataError: It cannot be read, is too long, or is not UTF-8; then the line is told.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise DataError(path, 0, error.strerror or str(error)) from error
    if len(content) > MOST_BYTES:
        raise DataError(path, 0, f"is longer than {MOST_BYTES >> 20} MiB")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(path, line, f"byte 0x{content[error.start]:02x} is not UTF-8") from error


def read_lines(path: Path) -> list[str]:
    """Read the lines of a file, each one sentence that is not empty; only a newline ends a line.

    Raises:
        DataError: The file cannot be read, has no line, or one that cannot be a sentence.
    """
    lines = split_lines(read_text(path))
    if not lines:
        raise DataError(path, 0, "is empty")
    return [checked(path, number, line) for number, line in enumerate(lines, 1)]


def split_lines(text: str) -> list[str]:
    """Cut text at newlines; the last one ends its line and begins none."""
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def checked(path: Path, number: int, text: str) -> str:
    """One sentence on one line.

    Raises:
        DataError: There is nothing, or too much.
    """
    line = one_line(text)
    if not line:
        raise DataError(path, number, "is empty, expected a sentence")
    if len(line) > MOST_CHARACTERS:
        raise DataError(path, number, f"has {len(line)} characters, expected at most {MOST_CHARACTERS}")
    return line


def examples_of(sources: Sequence[str], references: Sequence[Sequence[str]]) -> tuple[Example, ...]:
    """Put together sentences and their parallel lists of references, of which each has one a sentence."""
    return tuple(
        Example(source, variants) for source, variants in zip(sources, zip(*references, strict=True), strict=True)
    )
