"""What the sub-commands of `copydesk image` share: how registries are reached, progress, and how they fail."""

from __future__ import annotations

import asyncio
import errno
import signal
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from copydesk.cli import terminal
from copydesk.imagefetcher.convert.errors import SpoolFullError
from copydesk.imagefetcher.errors import ImageError
from copydesk.imagefetcher.index import Platform
from copydesk.imagefetcher.registry.errors import BadReferenceError, CredentialsError, PlainHttpRefusedError
from copydesk.imagefetcher.registry.options import CertificateError, RegistryOptions
from copydesk.imagefetcher.trace import TraceFormatError

FAILED = 1
BAD_INPUT = 2
TERMINATED = 128 + signal.SIGTERM
_INPUT_ERRORS = (BadReferenceError, CertificateError, CredentialsError, PlainHttpRefusedError, TraceFormatError)


@dataclass(frozen=True, slots=True)
class Access:
    """How registries are reached, as said on the command line."""

    plain_http: bool
    plain_http_hosts: frozenset[str]
    authorities: Path | None

    def options(self) -> RegistryOptions:
        """The options of a client."""
        return RegistryOptions(
            plain_http=self.plain_http,
            plain_http_hosts=self.plain_http_hosts,
            authorities=self.authorities,
        )


class Bars:
    """Progress on stderr, a bar a phase and platform; nothing where nobody watches."""

    def __init__(self) -> None:
        console = terminal.stderr()
        self._progress = Progress(
            TextColumn("{task.description:<24}"),
            BarColumn(),
            DownloadColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def report(self, platform: Platform, phase: str, done: int, total: int) -> None:
        """Moves the bar of a phase."""
        self.move(f"{platform} {phase}", done, total)

    def move(self, name: str, done: int, total: int) -> None:
        """Moves the bar called `name`."""
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task(name, total=total)
        self._progress.update(self._tasks[name], completed=done, total=total)


def run(work: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Does the work; returns its exit code, or that of what went wrong, with one line that says what."""
    try:
        return asyncio.run(_until_terminated(work()))
    except ImageError as error:
        terminal.say_error(str(error), error.hint)
        return BAD_INPUT if isinstance(error, _INPUT_ERRORS) else FAILED
    except OSError as error:
        hint = SpoolFullError.hint if error.errno == errno.ENOSPC else ""
        terminal.say_error(f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror), hint)
        return FAILED


async def _until_terminated(work: Coroutine[Any, Any, int]) -> int:
    """Does the work; SIGTERM cancels it as Ctrl-C does, or what it keeps in temporary folders would stay there."""
    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        own = asyncio.current_task()
        if own is None or own.cancelling():
            raise  # by Ctrl-C
        return TERMINATED
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


def write_json(value: object) -> None:
    """One JSON object on stdout."""
    terminal.write_line(msgspec.json.encode(value))


def size_text(count: int) -> str:
    """A size for people."""
    value, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            break
        value /= 1024
    return f"{count} B" if unit == "B" else f"{value:,.1f} {unit}"
