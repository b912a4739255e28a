"""`copydesk autoscaler compare`: where a candidate and the live configuration differed, and what then happened."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import msgspec

from copydesk.autoscaler.compare import Comparison
from copydesk.autoscaler.compare import compare as compare_entries
from copydesk.autoscaler.log_entry import Brief
from copydesk.autoscaler.log_file import log_files, read_entries
from copydesk.cli import terminal
from copydesk.cli.decisions.find import candidates, find_log
from copydesk.cli.decisions.moment import MomentError, read_moment
from copydesk.cli.decisions.render import comparison_tables

BAD_INPUT = 2
NOTHING_FOUND = 1


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """What `--json` prints."""

    file: str
    comparisons: tuple[Comparison, ...]


@dataclass(frozen=True, slots=True)
class CompareRequest:
    """What was asked for on the command line."""

    models: tuple[str, ...]
    file: Path | None
    start: str | None
    end: str | None
    as_json: bool


def compare(request: CompareRequest) -> int:
    """Show it; return the exit code."""
    try:
        span = _span(request)
    except MomentError as error:
        terminal.say_error(str(error))
        return BAD_INPUT
    path = request.file or find_log(os.environ)
    if path is None or not log_files(path):
        looked = request.file or ", ".join(dict.fromkeys(str(path) for path in candidates(os.environ)))
        terminal.say_error(f"there is no decision log at {looked}", "name one by --file")
        return BAD_INPUT
    try:
        found = compare_entries(_entries(path, request.models, span))
    except OSError as error:
        terminal.say_error(f"{error.filename or path}: {error.strerror or error}")
        return BAD_INPUT
    return _show(request, path, found)


def _span(request: CompareRequest) -> tuple[float, float]:
    now = datetime.now().astimezone()
    start = read_moment(request.start, now) if request.start else float("-inf")
    end = read_moment(request.end, now) if request.end else float("inf")
    if start >= end:
        raise MomentError(f"{request.start} to {request.end}")
    return start, end


def _entries(path: Path, models: tuple[str, ...], span: tuple[float, float]) -> Iterator[Brief]:
    start, end = span
    for file in log_files(path):
        for entry in read_entries(file, Brief):
            if start <= entry.time <= end and (not models or entry.model in models):
                yield entry


def _show(request: CompareRequest, path: Path, found: tuple[Comparison, ...]) -> int:
    if request.as_json:
        terminal.write_line(msgspec.json.encode(Compared(file=str(path), comparisons=found)))
    elif found:
        terminal.stdout().print(comparison_tables(found))
    if found:
        return 0
    terminal.say_error(
        f"no candidate has decided beside the live configuration in {path}",
        "one is set by COPYDESK_AUTOSCALER_SHADOW_FILE, or by candidate: in the MODELS_FILE",
    )
    return NOTHING_FOUND
