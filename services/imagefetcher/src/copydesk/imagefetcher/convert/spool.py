"""Contents of files on disk while an image is converted, each kept once.

A file is cut into granules of 64 KiB. A granule of zeros is left out, whether the archive called it a hole or
not; the others are appended to one temporary file, each file's from a block border on. Two files with the same
granules are the same content. Memory holds a few numbers a content.
"""

from __future__ import annotations

import errno
import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from copydesk.imagefetcher.convert.errors import LayerError, SpoolFullError
from copydesk.imagefetcher.index import BLOCK_SIZE

GRANULE = 64 << 10
BLOCKS_PER_GRANULE = GRANULE // BLOCK_SIZE
MAX_CHUNKS = 1 << 18
"""A sparse file larger than this many granules takes larger ones, or its table of chunks would be larger than
it."""
LOOK_BYTES = 64 << 20
RESERVE_BYTES = 512 << 20
"""What is left free on the disk (a twentieth of it, if that is less); looked at every LOOK_BYTES."""
MAX_FILE_SIZE = 1 << 44
"""The longest file, holes included: 16 TiB, ext4's limit with blocks of 4 KiB."""


class Run(NamedTuple):
    """`blocks` blocks from `file_block` on, kept in the spool from block `spool_block` on."""

    file_block: int
    blocks: int
    spool_block: int


class Content(NamedTuple):
    """What some files hold: its length in bytes, holes included, and the runs of blocks that are not holes.

    `mark` is a number from 0 to 255 that follows from the content, by chance as it were.
    """

    size: int
    runs: tuple[Run, ...]
    mark: int = 1


class Spool:
    """The temporary file in `folder`; it has no name, so that nothing is left behind however the process ends."""

    def __init__(self, folder: Path | None = None) -> None:
        # Closed by `close` and with the process; a `with` here would end with the constructor.
        self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115
        self._folder = str(folder or tempfile.gettempdir())
        self._blocks = 0
        self._looked_at = 0
        self._known: dict[bytes, int] = {}
        self.contents: list[Content] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Gives the space back."""
        self._file.close()

    @property
    def size(self) -> int:
        """How many bytes are kept."""
        return self._blocks * BLOCK_SIZE

    def add(self, size: int, pieces: Iterable[tuple[int, bytes]]) -> int:
        """Keeps a file of `size` bytes that holds `pieces` (offset, bytes), in order; returns its content's
        number.

        Raises LayerError for a file that is too long, SpoolFullError without space on the disk.
        """
        if size > MAX_FILE_SIZE:
            raise LayerError(f"a file of {size} bytes, at most {MAX_FILE_SIZE} are possible")
        start = self._blocks
        seen = hashlib.sha256(size.to_bytes(8, "little"))
        runs: list[Run] = []
        granule = granule_size(size)
        for offset, data in _granules(size, granule, pieces):
            seen.update(offset.to_bytes(8, "little"))
            seen.update(data)
            self._append(runs, offset // BLOCK_SIZE, data)
        digest = seen.digest()
        known = self._known.setdefault(digest, len(self.contents))
        if known < len(self.contents):
            self._blocks = start
            return known
        self.contents.append(Content(size, tuple(runs), digest[0]))
        return known

    def read(self, block: int, count: int) -> bytes:
        """`count` blocks from spool block `block` on."""
        return os.pread(self._file.fileno(), count * BLOCK_SIZE, block * BLOCK_SIZE).ljust(
            count * BLOCK_SIZE, b"\0"
        )

    def _leave_room(self) -> None:
        """Stops before the disk is full: a layer may unpack to any length, and others live on this disk too."""
        if self._looked_at <= self.size < self._looked_at + LOOK_BYTES and self.size:
            return
        self._looked_at = self.size
        disk = os.fstatvfs(self._file.fileno())
        if disk.f_bavail * disk.f_frsize < min(RESERVE_BYTES, disk.f_blocks * disk.f_frsize // 20):
            raise SpoolFullError(self._folder)

    def _append(self, runs: list[Run], file_block: int, data: bytes) -> None:
        self._leave_room()
        self._write(data, self._blocks * BLOCK_SIZE)
        count = -(-len(data) // BLOCK_SIZE)
        last = runs[-1] if runs else None
        if last and last.file_block + last.blocks == file_block:
            runs[-1] = Run(last.file_block, last.blocks + count, last.spool_block)
        else:
            runs.append(Run(file_block, count, self._blocks))
        self._blocks += count

    def _write(self, data: bytes, at: int) -> None:
        # A known content is overwritten by what follows it, so a block's end must be written too.
        view = memoryview(data.ljust(-(-len(data) // BLOCK_SIZE) * BLOCK_SIZE, b"\0"))
        while view:
            try:
                written = os.pwrite(self._file.fileno(), view, at)
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                    raise SpoolFullError(self._folder) from error
                raise
            view, at = view[written:], at + written


def granule_size(size: int) -> int:
    """The granule of a file of `size` bytes: 64 KiB, or the power of two that keeps its table of chunks short."""
    return max(GRANULE, 1 << max(0, -(-size // MAX_CHUNKS) - 1).bit_length())


def _granules(size: int, granule: int, pieces: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    """The granules that are not all zeros, as (offset, bytes); the last one of a file ends with the file."""
    start, buffer = 0, bytearray()
    for offset, piece in pieces:
        at = 0
        while at < len(piece):
            position = offset + at
            if position >= start + granule:
                yield from _kept(size, granule, start, buffer)
                start, buffer = position - position % granule, bytearray()
            buffer.extend(bytes(position - start - len(buffer)))
            taken = min(len(piece) - at, start + granule - position)
            buffer.extend(memoryview(piece)[at : at + taken])
            at += taken
    yield from _kept(size, granule, start, buffer)


def _kept(size: int, granule: int, start: int, buffer: bytearray) -> Iterator[tuple[int, bytes]]:
    if buffer and (buffer[0] or buffer != bytes(len(buffer))):
        yield start, bytes(buffer.ljust(min(granule, size - start), b"\0"))
