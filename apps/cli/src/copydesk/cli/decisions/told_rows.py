"""Rows of short cells, each with a sentence: at its end where there is room to read it, else below."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

ROOM = 40
"""A sentence in a narrower column than this has a word or two a line, and cannot be read."""
GAP = 2


@dataclass(frozen=True, slots=True)
class ToldRow:
    """One row; `cells` are never broken or cut as long as they fit side by side."""

    cells: tuple[Text, ...]
    sentence: Text


@dataclass(frozen=True, slots=True)
class ToldRows:
    """All rows; `names` are headings, the last one of the sentences; `least` the least widths of cells."""

    rows: Sequence[ToldRow]
    names: tuple[str, ...] = ()
    least: tuple[int, ...] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Lay the rows out for the width that there is."""
        widths = self._widths()
        left = options.max_width - sum(widths) - GAP * len(widths)
        if left >= min(ROOM, max((row.sentence.cell_len for row in self.rows), default=0)):
            yield self._beside(widths)
        else:
            yield from self._below(widths, aligned=left + GAP >= 0)

    def _widths(self) -> list[int]:
        headings = [Text(name) for name in self.names[:-1]]
        lines = [row.cells for row in self.rows] + ([tuple(headings)] if headings else [])
        least = self.least or (0,) * len(lines[0] if lines else ())
        return [
            max(width, *(cell.cell_len for cell in column))
            for width, column in zip(least, zip(*lines, strict=True), strict=True)
        ]

    def _beside(self, widths: list[int]) -> Table:
        table = Table(box=None, padding=(0, GAP, 0, 0), header_style="dim", show_header=bool(self.names))
        for name, width in zip(self.names[:-1] or [""] * len(widths), widths, strict=True):
            table.add_column(name, no_wrap=True, min_width=width)
        table.add_column(self.names[-1] if self.names else "", ratio=1, overflow="fold")
        for row in self.rows:
            table.add_row(*row.cells, row.sentence)
        return table

    def _below(self, widths: list[int], *, aligned: bool) -> Iterator[Text | Padding]:
        if self.names and aligned:
            yield _line([Text(name, "dim") for name in self.names[:-1]], widths)
        for row in self.rows:
            yield _line(row.cells, widths if aligned else [0] * len(widths))
            yield Padding(row.sentence, (0, 0, 0, 2 * GAP))


def _line(cells: Sequence[Text], widths: Sequence[int]) -> Text:
    line = Text()
    for cell, width in zip(cells, widths, strict=True):
        line.append_text(cell).append(" " * (max(0, width - cell.cell_len) + GAP))
    line.rstrip()
    return line
