"""`copydesk autoscaler compare`: where a candidate and the live configuration differed, and what then happened."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import msgspec
from msgspec.structs import replace

from copydesk.autoscaler.compare import Comparison
from copydesk.autoscaler.compare import compare as compare_entries
from copydesk.autoscaler.log_entry import Brief
from copydesk.autoscaler.log_file import log_files, read_entries
from copydesk.cli import terminal
from copydesk.cli.decisions.find import candidates, find_log
from copydesk.cli.decisions.moment import MomentError, read_moment
from copydesk.cli.decisions.plain import legible
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


class EmptySpanError(ValueError):
    """A span of time that ends before it begins, or as it does; it carries both as they were given."""

    def __init__(self, start: str | None, end: str | None) -> None:
        self.start = start
        self.end = end
        super().__init__(f"--from {start} is not before --to {end}")


def compare(request: CompareRequest) -> int:
    """Show it; return the exit code."""
    try:
        span = _span(request)
    except (MomentError, EmptySpanError) as error:
        terminal.say_error(str(error))
        return BAD_INPUT
    path = request.file or find_log(os.environ)
    if path is None or not log_files(path):
        looked = request.file or ", ".join(dict.fromkeys(str(path) for path in candidates(os.environ)))
        terminal.say_error(f"there is no decision log at {looked}", "name one by --file")
        return BAD_INPUT
    try:
        found = compare_entries(_entries(path, request.models, span))
        return _show(request, path, found)
    except BrokenPipeError:  # who reads has seen enough
        raise
    except OSError as error:
        terminal.say_error(f"{error.filename or 'standard output'}: {error.strerror or error}")
        return BAD_INPUT


def _span(request: CompareRequest) -> tuple[float, float]:
    now = datetime.now()
    start = read_moment(request.start, now) if request.start else float("-inf")
    end = read_moment(request.end, now) if request.end else float("inf")
    if start >= end:
        raise EmptySpanError(request.start, request.end)
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
        named = [replace(one, model=legible(one.model), candidate=legible(one.candidate)) for one in found]
        terminal.stdout().print(comparison_tables(named))
    if found:
        return 0
    terminal.say_error(
        f"no candidate has decided beside the live configuration in {path}",
        "one is set by COPYDESK_AUTOSCALER_SHADOW_FILE, or by candidate: in the MODELS_FILE",
    )
    return NOTHING_FOUND
