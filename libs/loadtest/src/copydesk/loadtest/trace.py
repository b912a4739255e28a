"""Arrival times from a file: when real users asked, to be asked again at the same pace.

CSV: one arrival a line, its time in the first column or in the one called `time`, `timestamp` or `arrived_at`
(in any case) where the first line is a head. JSON lines (a name that ends in .jsonl or .ndjson): an object a
line with one of those keys, or a bare number. A time is seconds, or a date and time as in ISO 8601. Times must
not run backwards.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from copydesk.common.errors import CopydeskError

NAMES = ("time", "timestamp", "arrived_at")
JSON_LINES = (".jsonl", ".ndjson")


class TraceError(CopydeskError):
    """A trace that cannot be used: `path`, the number of the `line` (0: the whole file), and why."""

    exit_code = 2

    def __init__(self, path: str, line: int, reason: str) -> None:
        self.path = path
        self.line = line
        self.reason = reason
        super().__init__(f"{path}:{line}: {reason}" if line else f"{path}: {reason}")


def read_trace(path: Path) -> list[float]:
    """Return the times of a trace file in seconds, ascending.

    Raises:
        TraceError: It cannot be read, holds no arrivals, or a line of it is no time or earlier than the one
        before.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise TraceError(str(path), 0, error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise TraceError(str(path), 0, f"not UTF-8: {error.reason} at byte {error.start}") from error
    found = _json_times if path.suffix in JSON_LINES else _csv_times
    return _ascending(str(path), found(str(path), lines))


def _ascending(path: str, numbered: Iterable[tuple[int, float]]) -> list[float]:
    times: list[float] = []
    for line, time in numbered:
        if times and time < times[-1]:
            raise TraceError(path, line, f"time runs backwards: {time:.6f} after {times[-1]:.6f}")
        times.append(time)
    if not times:
        raise TraceError(path, 0, "holds no arrivals")
    return times


def _json_times(path: str, lines: list[str]) -> Iterator[tuple[int, float]]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            value: Any = msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError) as error:
            raise TraceError(path, number, f"no JSON: {error}") from error
        if isinstance(value, dict):
            lowered = {str(key).lower(): one for key, one in value.items()}
            value = next((lowered[name] for name in NAMES if name in lowered), None)
        yield number, _time(path, number, str(value))


def _csv_times(path: str, lines: list[str]) -> Iterator[tuple[int, float]]:
    column, begun = 0, False
    for number, row in enumerate(_csv_rows(path, lines), 1):
        if not any(cell.strip() for cell in row):
            continue
        if not begun:
            begun = True
            head = [cell.strip().lower() for cell in row]
            named = next((head.index(name) for name in NAMES if name in head), None)
            if named is not None:
                column = named
                continue
        if column >= len(row):
            raise TraceError(path, number, f"has {len(row)} columns, the time is expected in column {column + 1}")
        yield number, _time(path, number, row[column].strip())


def _csv_rows(path: str, lines: list[str]) -> Iterator[list[str]]:
    rows = csv.reader(lines)
    try:
        yield from rows
    except csv.Error as error:
        raise TraceError(path, rows.line_num, f"no CSV: {error}") from error


def _time(path: str, line: int, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = _date(text)
    if not math.isfinite(seconds):
        raise TraceError(path, line, f"{text!r} is no time; expected seconds, or a date and time as in ISO 8601")
    return seconds


def _date(text: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return math.nan
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
