"""What a part of the check found: one row a finding, as a line of JSON."""

from __future__ import annotations

import msgspec


class Row(msgspec.Struct, frozen=True, omit_defaults=True):
    """One finding of `part` about `setting`, of a `model` where there is one.

    `value` is in `unit`; `ratio` is to the first row of the same part, model and workload. `ok` is None where
    there is nothing to hold it to. `note` says what is worth knowing, or why there is no value.
    """

    part: str
    setting: str
    model: str = ""
    workload: str = ""
    value: float | None = None
    unit: str = ""
    ratio: float | None = None
    ok: bool | None = None
    note: str = ""

    def line(self) -> str:
        """As JSON."""
        return msgspec.json.encode(self).decode()


def read_row(line: str) -> Row | None:
    """The row of a line; None for a line that is none."""
    try:
        return msgspec.json.decode(line, type=Row)
    except msgspec.MsgspecError:
        return None


def with_ratios(rows: list[Row]) -> list[Row]:
    """The same rows, each with its ratio to the first of the same part and model under the same load."""
    first: dict[tuple[str, str, str, str], float] = {}
    found: list[Row] = []
    for row in rows:
        if row.value is None or row.unit != "requests/s":
            found.append(row)
            continue
        base = first.setdefault((row.part, row.model, row.workload, row.unit), row.value)
        ratio = round(row.value / base, 3) if base else None
        found.append(msgspec.structs.replace(row, ratio=ratio))
    return found
