"""Writes the decision log, and never stands in anybody's way: not with a full disk, nor with one that hangs.

A thread of its own appends lines. What it cannot write is dropped, counted, and complained of once; what waits for
it is bounded. The file is opened for each batch, so that one that was moved or removed is begun anew.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec

from copydesk.autoscaler.log_entry import Entry
from copydesk.common.telemetry import get_logger

MOST_WAITING = 1000
CLOSE_SECONDS = 2.0

_log = get_logger(__name__)
_encode = msgspec.json.Encoder().encode


class LogWriter:
    """Appends to `path`; past `limit` bytes the file is moved aside, and of such `files` - 1 are kept.

    `dropped` counts the lines that were lost.
    """

    def __init__(self, path: Path, limit: int, files: int) -> None:
        self.path = path
        self.dropped = 0
        self._limit = limit
        self._files = files
        self._waiting: queue.Queue[bytes | None] = queue.Queue(MOST_WAITING)
        self._complaint = ""
        self._thread = threading.Thread(target=self._work, name="decision-log", daemon=True)
        self._thread.start()

    def write(self, entry: Entry) -> None:
        """Have a line written soon."""
        try:
            self._waiting.put_nowait(_encode(entry) + b"\n")
        except queue.Full:
            self.dropped += 1

    def close(self) -> None:
        """Write what is waiting, for a short time at the most."""
        try:
            self._waiting.put(None, timeout=CLOSE_SECONDS)
        except queue.Full:
            return
        self._thread.join(CLOSE_SECONDS)

    def _work(self) -> None:
        open_end = False
        while not open_end:
            lines, open_end = self._batch()
            try:
                self._append(lines)
            except OSError as error:
                self.dropped += len(lines)
                self._complain(error.strerror or str(error))
            else:
                self._recover(lines)

    def _batch(self) -> tuple[list[bytes], bool]:
        lines: list[bytes] = []
        line = self._waiting.get()
        while line is not None:
            lines.append(line)
            try:
                line = self._waiting.get_nowait()
            except queue.Empty:
                return lines, False
        return lines, True

    def _append(self, lines: Sequence[bytes]) -> None:
        if not lines:
            return
        data = b"".join(lines)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self._is_full(len(data)):
            self._rotate()
        descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            size = os.fstat(descriptor).st_size
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                data = b"\n" + data  # whoever wrote last was cut short: what it wrote must not spoil this line
            written = os.write(descriptor, data)
        finally:
            os.close(descriptor)
        if written < len(data):
            raise OSError(f"{written} of {len(data)} bytes written")

    def _is_full(self, more: int) -> bool:
        try:
            size = self.path.stat().st_size
        except FileNotFoundError:
            return False
        return size > 0 and size + more > self._limit

    def _rotate(self) -> None:
        for number in range(self._files - 1, 0, -1):
            with contextlib.suppress(FileNotFoundError):  # another autoscaler may do the same at this moment
                numbered(self.path, number - 1).replace(numbered(self.path, number))
        if self._files == 1:
            self.path.unlink(missing_ok=True)

    def _complain(self, reason: str) -> None:
        if reason != self._complaint:
            self._complaint = reason
            _log.warning("decision_log_unwritable", path=str(self.path), reason=reason)

    def _recover(self, lines: Sequence[bytes]) -> None:
        if self._complaint and lines:
            self._complaint = ""
            _log.info("decision_log_writable", path=str(self.path), lost=self.dropped)


def numbered(path: Path, number: int) -> Path:
    """Return the name of the log that was moved aside so many times."""
    return path.with_name(f"{path.name}.{number}") if number else path
