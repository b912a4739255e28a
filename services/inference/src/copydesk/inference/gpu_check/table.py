"""Rows for people."""

from __future__ import annotations

from collections.abc import Sequence

from copydesk.inference.gpu_check.rows import Row

_COLUMNS = ("part", "model", "workload", "setting", "value", "", "ratio", "ok", "note")


def table(rows: Sequence[Row]) -> str:
    """All rows in columns, as Markdown."""
    cells = [_COLUMNS, *(_cells(row) for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(_COLUMNS))]
    ruler = ["-" * width for width in widths]
    lines = [cells[0], ruler, *cells[1:]]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |"
        for line in lines
    )


def _cells(row: Row) -> tuple[str, ...]:
    value = "" if row.value is None else f"{row.value:g}"
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
    ok = {None: "", True: "yes", False: "NO"}[row.ok]
    note = " ".join(row.note.replace("|", "/").split())
    return row.part, row.model, row.workload, row.setting, value, row.unit, ratio, ok, note
