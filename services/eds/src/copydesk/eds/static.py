"""The static source: a file of endpoints, read again when it changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from copydesk.common.telemetry import get_logger
from copydesk.eds.endpoint_file import EndpointFileError, read_endpoints
from copydesk.eds.roster import Listed
from copydesk.eds.source import Emit

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Stamp:
    """What of a file changes whenever its content does, be it rewritten, replaced, or behind another link."""

    inode: int
    size: int
    modified_ns: int

    @classmethod
    def of(cls, path: Path) -> Stamp | None:
        """Look at `path`; None if it is not there."""
        try:
            status = path.stat()
        except OSError:
            return None
        return cls(status.st_ino, status.st_size, status.st_mtime_ns)


class StaticSource:
    """Follows `path`, looking every `poll` seconds; a broken file leaves the last good list in force."""

    def __init__(self, path: Path, *, poll: float, on_error: Callable[[], None]) -> None:
        self._path = path
        self._poll = poll
        self._on_error = on_error
        self._task: asyncio.Task[None] | None = None

    async def start(self, emit: Emit) -> None:
        """Read the file and follow it; raise `EndpointFileError` if there is no good one to begin with."""
        stamp = Stamp.of(self._path)
        emit(Listed(read_endpoints(self._path)))
        self._task = asyncio.create_task(self._follow(emit, stamp), name="static-source")

    async def close(self) -> None:
        """Stop following."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _follow(self, emit: Emit, read: Stamp | None) -> None:
        seen = read
        while True:
            await asyncio.sleep(self._poll)
            last, seen = seen, await asyncio.to_thread(Stamp.of, self._path)
            # A file that is being written is left until it has been still for one look.
            if seen == read or seen != last:
                continue
            read = seen
            await self._read(emit)

    async def _read(self, emit: Emit) -> None:
        try:
            endpoints = await asyncio.to_thread(read_endpoints, self._path)
        except EndpointFileError as error:
            self._on_error()
            _log.warning(
                "static_file_broken",
                path=str(error.path),
                line=error.line,
                problem=error.problem,
                kept="last good list",
            )
            return
        _log.info("static_file_read", path=str(self._path), models=len(endpoints))
        emit(Listed(endpoints))
