"""Reads decision logs, the ones that were moved aside too; a line that is none is passed over."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from stat import S_ISREG
from typing import TypeVar

import msgspec

from copydesk.autoscaler.log_entry import Brief, Entry
from copydesk.autoscaler.log_writer import numbered

LONGEST_LINE = 1 << 20
MOST_FILES = 1000

T = TypeVar("T", bound=Brief)


def log_files(path: Path) -> list[Path]:
    """Return the logs of `path`, the oldest first."""
    found = [path] if path.exists() else []
    for number in range(1, MOST_FILES):
        older = numbered(path, number)
        if not older.exists():
            break
        found.append(older)
    return found[::-1]


def read_entries(path: Path, type_: type[T]) -> Iterator[T]:
    """Yield what stands in one file, in its order, whole or in brief; raise `OSError` if it cannot be read."""
    decode = msgspec.json.Decoder(type_).decode
    with path.open("rb") as file:
        for line in iter(lambda: file.readline(LONGEST_LINE), b""):
            entry = parse(line, decode)
            if entry is not None:
                yield entry


def parse(line: bytes, decode: Callable[[bytes], T]) -> T | None:
    """Return the decision in a line; None where there is none, or half of one."""
    try:
        return decode(line)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None


def last_entries(path: Path, count: int, wanted: Callable[[Entry], bool]) -> list[Entry]:
    """Return the last wanted decisions, in their order, reading no more files than it takes."""
    found: list[Entry] = []
    for file in reversed(log_files(path)):
        tail = deque((entry for entry in read_entries(file, Entry) if wanted(entry)), maxlen=count)
        found = [*tail, *found][-count:]
        if len(found) >= count:
            break
    return found


class LogTail:
    """What is appended to a log from now on, across its moving aside."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._partial = b""
        self._decode = msgspec.json.Decoder(Entry).decode
        self._inode, self._offset = _place(path)

    def new(self) -> list[Entry]:
        """Return the decisions that came since the last call."""
        inode, size = _place(self._path)
        if inode == self._inode and size >= self._offset:
            return self._rest(self._path, size)
        aside = numbered(self._path, 1)
        last = self._rest(aside, size) if (size := self._size_of(aside)) > self._offset else []
        self._inode, self._offset, self._partial = inode, 0, b""
        return last + self._rest(self._path, _place(self._path)[1])

    def _size_of(self, path: Path) -> int:
        """Return the size of the file that was followed, if this is where it was moved."""
        inode, size = _place(path)
        return size if inode == self._inode else 0

    def _rest(self, path: Path, size: int) -> list[Entry]:
        """Return what stands in a file beyond what was read of it; nothing if it has just been moved."""
        if size <= self._offset:
            return []
        try:
            with path.open("rb") as file:
                file.seek(self._offset)
                data = self._partial + file.read(size - self._offset)
        except FileNotFoundError:
            return []
        self._offset = size
        *lines, self._partial = data.split(b"\n")
        if len(self._partial) > LONGEST_LINE:
            self._partial = b""
        return [entry for line in lines if (entry := parse(line, self._decode)) is not None]


def _place(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return (status.st_ino, status.st_size) if S_ISREG(status.st_mode) else (0, 0)
