"""Traces from files, by the names of their columns.

- The Azure LLM inference traces of 2023 and 2024 (https://github.com/Azure/AzurePublicDataset): `TIMESTAMP`,
  `ContextTokens`, `GeneratedTokens`; a date and time a request.
- BurstGPT (https://github.com/HPMLL/BurstGPT): `Timestamp`, `Model`, `Request tokens`, `Response tokens`, `Total
  tokens`, `Log Type`; seconds from the beginning. Requests that failed there (no response tokens) were asked for
  all the same, and count.
- Rates: `time` and `rate`; seconds or dates at an even distance, and requests a second.

Times must not run backwards. Long silence is a hole rather than no demand: what is missing is not zero.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import TextIO

import numpy as np

from copydesk.simulator.trace import LONGEST_S, Trace, TraceError

LONGEST_GAP_S = 900.0
_TIMES, _RATE = ("timestamp", "time"), "rate"


def read_trace(path: Path, longest_gap_s: float = LONGEST_GAP_S) -> Trace:
    """Read a trace file; a gap between requests that is longer than `longest_gap_s` is a hole.

    Raises:
        TraceError: It cannot be read, is of no known format, has a hole, or time runs backwards in it.
    """
    source = str(path)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return _read(source, path.stem, file, longest_gap_s)
    except OSError as error:
        raise TraceError(source, 0, error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise TraceError(source, 0, f"not UTF-8: {error.reason} at byte {error.start}") from error
    except csv.Error as error:
        raise TraceError(source, 0, f"no CSV: {error}") from error


def _read(source: str, name: str, file: TextIO, longest_gap_s: float) -> Trace:
    rows = csv.reader(file)
    head = [column.strip().lower() for column in next(rows, [])]
    time = next((head.index(column) for column in _TIMES if column in head), None)
    if time is None:
        raise TraceError(
            source, 1, f"no column called {' or '.join(_TIMES)}; expected Azure, BurstGPT or time,rate"
        )
    if _RATE in head:
        return _from_rates(source, name, list(_columns(source, rows, (time, head.index(_RATE)))))
    times = (row[1] for row in _ascending(source, _columns(source, rows, (time,)), longest_gap_s))
    return _from_arrivals(source, name, np.fromiter(times, dtype=np.float64))


def _columns(
    source: str, rows: Iterator[list[str]], places: tuple[int, ...]
) -> Iterator[tuple[int, float, float]]:
    """Yield (line, time, the second number or 0)."""
    for line, row in enumerate(rows, start=2):
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


def _from_arrivals(source: str, name: str, times: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Trace:
    if not len(times):
        raise TraceError(source, 0, "holds no request")
    if times[-1] - times[0] > LONGEST_S:
        raise TraceError(source, 0, f"longer than {LONGEST_S // 86_400} days")
    seconds = (times - times[0]).astype(np.int64)
    return Trace(name, f"{len(times):,} requests from a file", np.bincount(seconds).astype(np.float64))


def _from_rates(source: str, name: str, rows: list[tuple[int, float, float]]) -> Trace:
    if len(rows) < 2:
        raise TraceError(source, 0, "holds fewer than two rates")
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
