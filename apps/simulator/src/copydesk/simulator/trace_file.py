"""Traces from files, by the names of their columns.

- The Azure LLM inference traces of 2023 and 2024 (https://github.com/Azure/AzurePublicDataset): `TIMESTAMP`,
  `ContextTokens`, `GeneratedTokens`; a date and time a request.
- BurstGPT (https://github.com/HPMLL/BurstGPT): `Timestamp`, `Model`, `Request tokens`, `Response tokens`, `Total
  tokens`, `Log Type`, in newer files `Session ID` and `Elapsed time`; seconds from the beginning. Requests that
  failed there (no response tokens) were asked for all the same, and count.
- Rates: `time` and `rate`; seconds or dates at an even distance, and requests a second.

A file with counts an interval, but without `rate`, is refused: each line would be taken for one request.

Each may be packed by gzip. Times must not run backwards. Long silence is a hole rather than no demand: what is
missing is not zero. Requests are counted as they are read, so that a file may be larger than memory.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import re
import zlib
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import islice, pairwise
from pathlib import Path
from typing import TextIO

import numpy as np

from copydesk.simulator.trace import LONGEST_S, Trace, TraceError

LONGEST_GAP_S = 900.0
LONGEST_LINE = 1_000_000
_TIMES, _RATE = ("timestamp", "time"), "rate"
_COUNTS = (
    "requests",
    "request_count",
    "num_requests",
    "n_requests",
    "count",
    "counts",
    "arrivals",
    "calls",
    "hits",
)
_SPEEDS = ("rps", "qps", "rates", "requests_per_s", "requests_per_second", "requests/s")
_GZIP = b"\x1f\x8b"
_ESCAPED = re.compile("[\udc80-\udcff]")
"""What bytes that are no UTF-8 are read as."""


def read_trace(path: Path, longest_gap_s: float = LONGEST_GAP_S) -> Trace:
    """Read a trace file; a gap between requests that is longer than `longest_gap_s` is a hole.

    Raises:
        TraceError: It cannot be read, is of no known format, has a hole, or time runs backwards in it.
    """
    source = str(path)
    try:
        with _opened(path) as file:
            return _read(source, path.name.split(".")[0], file, longest_gap_s)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise TraceError(source, 0, f"gzip ends early, or is damaged: {error}") from error
    except OSError as error:
        raise TraceError(source, 0, error.strerror or str(error)) from error


@contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
    with path.open("rb") as file:
        packed = file.peek(2)[:2] == _GZIP
        with gzip.GzipFile(fileobj=file) if packed else file as raw:
            yield io.TextIOWrapper(raw, encoding="utf-8-sig", errors="surrogateescape", newline="")


def _read(source: str, name: str, file: TextIO, longest_gap_s: float) -> Trace:
    rows = _rows(source, file)
    _, first = next(rows, (1, []))
    head = [column.strip().lower() for column in first]
    time = next((head.index(column) for column in _TIMES if column in head), None)
    if time is None:
        raise TraceError(
            source, 1, f"no column called {' or '.join(_TIMES)}; expected Azure, BurstGPT or time,rate"
        )
    if _RATE in head:
        # There is at most one rate a second of the longest trace; what comes beyond shows that there are more.
        rates = islice(_columns(source, rows, (time, head.index(_RATE))), LONGEST_S + 1)
        return _from_rates(source, name, list(rates))
    _refuse_counts(source, head)
    return _from_arrivals(source, name, _ascending(source, _columns(source, rows, (time,)), longest_gap_s))


def _refuse_counts(source: str, head: list[str]) -> None:
    column = next((column for column in head if column in (*_COUNTS, *_SPEEDS)), None)
    if column is None:
        return
    how = "call it rate" if column in _SPEEDS else "divide it by the seconds of a line, and call it rate"
    raise TraceError(
        source, 1, f"without a column called rate each line is one request, but {column!r} says how many: {how}"
    )


def _rows(source: str, file: TextIO) -> Iterator[tuple[int, list[str]]]:
    """Yield (line, cells); what is no text or no CSV is refused with its line."""
    rows = csv.reader(_bounded(source, file))
    while True:
        try:
            row = next(rows, None)
        except csv.Error as error:
            raise TraceError(source, rows.line_num, f"no CSV: {error}") from error
        if row is None:
            return
        yield rows.line_num, row


def _bounded(source: str, file: TextIO) -> Iterator[str]:
    """Yield lines; one that never ends would fill the memory."""
    number = 0
    while line := file.readline(LONGEST_LINE):
        number += 1
        if len(line) == LONGEST_LINE:
            raise TraceError(source, number, f"longer than {LONGEST_LINE:,} characters")
        if not line.isascii() and _ESCAPED.search(line):
            raise TraceError(source, number, "not UTF-8")
        yield line


def _columns(
    source: str, rows: Iterator[tuple[int, list[str]]], places: tuple[int, ...]
) -> Iterator[tuple[int, float, float]]:
    """Yield (line, time, the second number or 0)."""
    for line, row in rows:
        if not row:
            continue
        try:
            time = _seconds(row[places[0]])
            second = float(row[places[1]]) if len(places) > 1 else 0.0
        except (IndexError, ValueError):
            raise TraceError(
                source, line, f"{','.join(row)[:60]!r} has no time, or no number, where expected"
            ) from None
        if not (math.isfinite(time) and math.isfinite(second)):
            raise TraceError(source, line, "a number that is not finite")
        yield line, time, second


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        found = datetime.fromisoformat(text.strip())
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def _ascending(
    source: str, rows: Iterator[tuple[int, float, float]], longest_gap_s: float
) -> Iterator[tuple[int, float, float]]:
    before: float | None = None
    for row in rows:
        line, time, _ = row
        if before is not None and time < before:
            raise TraceError(source, line, f"time runs backwards, by {before - time:.3f} s")
        if before is not None and time - before > longest_gap_s:
            raise TraceError(
                source, line, f"a hole of {time - before:.0f} s before this; longer than {longest_gap_s:.0f} s"
            )
        before = time
        yield row


def _from_arrivals(source: str, name: str, rows: Iterator[tuple[int, float, float]]) -> Trace:
    """Count the requests of each second; only the counts are kept."""
    counts = array("L")
    start: float | None = None
    for line, time, _ in rows:
        if start is None:
            start = time
        if time - start >= LONGEST_S:
            raise TraceError(source, line, f"more than {LONGEST_S // 86_400} days after the first request")
        second = int(time - start)
        if second >= len(counts):
            counts.extend([0] * (second + 1 - len(counts)))
        counts[second] += 1
    if not counts:
        raise TraceError(source, 0, "holds no request")
    return Trace(name, f"{sum(counts):,} requests from a file", np.array(counts, dtype=np.float64))


def _from_rates(source: str, name: str, rows: list[tuple[int, float, float]]) -> Trace:
    if len(rows) < 2:
        raise TraceError(source, 0, "holds fewer than two rates")
    if len(rows) > LONGEST_S:
        raise TraceError(source, rows[-1][0], f"more than {LONGEST_S:,} rates")
    distance = rows[1][1] - rows[0][1]
    for (_, before, _), (line, time, _) in pairwise(rows):
        if time <= before:
            raise TraceError(source, line, f"time runs backwards, by {before - time:.3f} s")
        if abs(time - before - distance) > 0.01 * distance:
            raise TraceError(
                source, line, f"a hole: {time - before:g} s after the line before, not {distance:g} s"
            )
    start, end = rows[0][1], rows[-1][1] + distance
    if end - start > LONGEST_S:
        raise TraceError(source, 0, f"longer than {LONGEST_S // 86_400} days")
    moments = np.arange(start, end)
    rates = np.array([rate for _, _, rate in rows])
    return Trace(
        name, "rates from a file", rates[((moments - start) / distance).astype(np.int64).clip(0, len(rates) - 1)]
    )
