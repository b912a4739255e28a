"""`copydesk image trace`: what a start-up reads, for `image convert --trace`."""

from __future__ import annotations

import asyncio
import shlex
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.markup import escape

from copydesk.cli import terminal
from copydesk.cli.commands.image_request import BAD_INPUT, Access, Bars, run, size_text, write_json
from copydesk.imagefetcher.index import Platform
from copydesk.imagefetcher.registry.image import resolve
from copydesk.imagefetcher.registry.reference import Reference
from copydesk.imagefetcher.registry.repository import Repository
from copydesk.imagefetcher.registry_upstream import this_platform
from copydesk.imagefetcher.trace import encode_trace
from copydesk.imagefetcher.tracing.ending import Ending, Until
from copydesk.imagefetcher.tracing.errors import (
    CommandNotFoundError,
    NoRuntimeError,
    NotRootError,
    UserNotFoundError,
)
from copydesk.imagefetcher.tracing.recording import Errand, Recording, record_start_up

_REFUSED = (CommandNotFoundError, NoRuntimeError, NotRootError, UserNotFoundError)
_ENDED = {
    Ending.EXIT: "it ended",
    Ending.OUTPUT: "its first output",
    Ending.READY: "it was ready",
    Ending.SECONDS: "time was up",
    Ending.INTERRUPT: "interrupted",
}


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """What was asked for on the command line."""

    ref: str
    command: tuple[str, ...]
    out: Path | None
    environment: tuple[str, ...]
    platform: str
    until: Until
    exact: bool
    work_dir: Path | None
    access: Access
    as_json: bool


@dataclass(frozen=True, slots=True)
class Report:
    """What `--json` prints; sizes in bytes. `exit_code` is null if the command had to be ended."""

    reference: str
    image: str
    platform: Platform
    file: str
    command: tuple[str, ...]
    exact: bool
    isolation: str
    ending: Ending
    exit_code: int | None
    seconds: float
    files: int
    ranges: int
    bytes_read: int
    warnings: tuple[str, ...]


def run_trace(request: TraceRequest) -> int:
    """Records; returns the exit code."""
    return run(lambda: _trace(request))


async def _trace(request: TraceRequest) -> int:
    reference = Reference.parse(request.ref)
    out = request.out or Path(f"{reference.repository.rpartition('/')[2]}.trace.json")
    environment = dict(entry.split("=", 1) for entry in request.environment)
    errand = Errand(request.command, environment, request.until, request.exact)
    async with Repository(reference, request.access.options()) as repository:
        platform = request.platform or str(this_platform())
        image = (await resolve(repository, (platform,))).images[0]
        try:
            with Bars() as bars:
                recording = await record_start_up(
                    repository,
                    image,
                    errand,
                    _interrupts,
                    request.work_dir,
                    lambda phase, done, total: bars.report(image.platform, phase, done, total),
                )
        except _REFUSED as error:
            terminal.say_error(str(error), error.hint)
            return BAD_INPUT
    await asyncio.to_thread(out.write_bytes, encode_trace(recording.trace))
    report = _report(str(reference), image.platform, out, recording, request)
    for warning in report.warnings:
        terminal.stderr().print(f"[bold yellow]warning:[/] {escape(warning)}", soft_wrap=True)
    if request.as_json:
        write_json(report)
    else:
        _show(report)
    return 0


@contextmanager
def _interrupts() -> Iterator[asyncio.Event]:
    """An event that Ctrl-C, or a request to end, sets."""
    event = asyncio.Event()
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        loop.add_signal_handler(number, event.set)
    try:
        yield event
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


def _report(reference: str, platform: Platform, out: Path, recording: Recording, request: TraceRequest) -> Report:
    trace = recording.trace
    return Report(
        reference,
        trace.image,
        platform,
        str(out),
        trace.command,
        request.exact,
        recording.isolation,
        recording.ending,
        recording.exit_code,
        recording.seconds,
        len({read.path for read in trace.reads}),
        len(trace.reads),
        recording.bytes_read,
        tuple(_warnings(recording, request.until)),
    )


def _warnings(recording: Recording, until: Until) -> Iterator[str]:
    if recording.exit_code:
        yield f"the command failed with exit code {recording.exit_code}; the trace holds what it read until then"
    if recording.ending is Ending.SECONDS and (until.output or until.ready_url):
        yield f"after {recording.seconds:.0f} s there was no {'output' if until.output else 'answer'} yet"
    if recording.ending is Ending.EXIT and until.ready_url:
        yield "the command ended before it was ready"
    if recording.isolation != "runc":
        yield "there is no runc: the command ran in namespaces of its own, with all of root's rights"
    if not recording.trace.reads:
        yield "nothing was read"


def _show(report: Report) -> None:
    out = terminal.stdout()
    command = shlex.join(report.command)
    out.print(f"[bold]{escape(report.reference)}[/] {report.platform}: {escape(command)}", soft_wrap=True)
    until = f"{report.seconds:,.1f} s, until {_ENDED[report.ending]}"
    out.print(f"  recorded  {until}; by {report.isolation}")
    out.print(f"  read      {size_text(report.bytes_read)} of {report.files:,} files, in {report.ranges:,} ranges")
    out.print(f"  trace     {escape(report.file)}", soft_wrap=True)
    use = f"copydesk image convert {report.reference} --trace {shlex.quote(report.file)}"
    out.print(f"Use it with: {escape(use)}", soft_wrap=True)
