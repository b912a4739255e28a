"""Reading a tar archive from front to back, a few kilobytes at a time.

Python's own tarfile remembers every entry, decodes names, and forgives much; a layer needs the opposite. What is
accepted follows Go's archive/tar, which container runtimes use, so that both see the same image.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from copydesk.imagefetcher.convert import pax, tar_header
from copydesk.imagefetcher.convert.errors import TarError
from copydesk.imagefetcher.convert.tar_header import BLOCK, TarEntry, parse_header

MAX_EXTENSION = 1 << 20
"""The longest extended header in bytes, as in Go's archive/tar."""
PIECE = 1 << 20
_EMPTY = bytes(BLOCK)
_WITH_DATA = (tar_header.REGULAR, tar_header.CONTIGUOUS, tar_header.GNU_SPARSE)


class Readable(Protocol):
    """Bytes from front to back; `read` may give fewer than asked for, and none only at the end."""

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes."""


class TarReader:
    """Iterates over the entries of an archive; `pieces` gives the data of the entry that came last.

    Data that was not read is skipped. Raises TarError for what is no archive, or one that breaks off.
    """

    def __init__(self, stream: Readable) -> None:
        self._stream = stream
        self._left = 0
        self._padding = 0
        self._entry: TarEntry | None = None

    def __iter__(self) -> Iterator[TarEntry]:
        while True:
            self._skip(self._left + self._padding)
            self._left = self._padding = 0
            entry = self._next()
            if entry is None:
                return
            self._entry = entry
            yield entry

    def pieces(self) -> Iterator[tuple[int, bytes]]:
        """The data of the current entry as (offset in the file, bytes), without what a sparse file leaves out."""
        entry = self._entry
        if entry is None:
            return
        ranges = [(0, entry.size)] if entry.sparse is None else entry.sparse
        for offset, length in ranges:
            at, end = offset, offset + length
            while at < end:
                piece = self._some(min(PIECE, end - at))
                self._left -= len(piece)
                yield at, piece
                at += len(piece)

    def _next(self) -> TarEntry | None:
        records: pax.Records = []
        names: dict[bytes, bytes] = {}
        while True:
            header = self._header()
            if header is None:
                return None
            entry = parse_header(header)
            if entry.kind == tar_header.PAX:
                records = pax.parse_records(self._extension(entry))
            elif entry.kind == tar_header.PAX_GLOBAL:
                self._extension(entry)
            elif entry.kind in (tar_header.GNU_LONG_NAME, tar_header.GNU_LONG_LINK):
                names[entry.kind] = self._extension(entry).split(b"\0", 1)[0]
            else:
                return self._complete(entry, header, records, names)

    def _complete(
        self, entry: TarEntry, header: bytes, records: pax.Records, names: dict[bytes, bytes]
    ) -> TarEntry:
        entry.name = names.get(tar_header.GNU_LONG_NAME, entry.name)
        entry.link = names.get(tar_header.GNU_LONG_LINK, entry.link)
        pax.apply_records(entry, records)
        if entry.kind == tar_header.REGULAR and entry.name.endswith(b"/"):
            entry.kind = tar_header.DIRECTORY
        if entry.kind not in _WITH_DATA:
            # Only files have data; other entries may name a size that means nothing (hard links of old archivers).
            entry.size = entry.stored = 0
            return entry
        self._padding = -entry.stored % BLOCK
        if entry.kind == tar_header.GNU_SPARSE:
            pax.gnu_sparse_ranges(entry, header, self._exactly)
        else:
            pax.sparse_ranges(entry, records, self._exactly)
        self._left = entry.stored
        return entry

    def _header(self) -> bytes | None:
        block = self._block()
        if block is None:
            return None
        if block != _EMPTY:
            return block
        following = self._block()
        if following is None or following == _EMPTY:
            return None
        raise TarError("has data after a block that marks the end")

    def _block(self) -> bytes | None:
        first = self._stream.read(BLOCK)
        if not first:
            return None
        return first if len(first) == BLOCK else first + self._exactly(BLOCK - len(first))

    def _extension(self, entry: TarEntry) -> bytes:
        if entry.size > MAX_EXTENSION:
            raise TarError(f"has an extended header of {entry.size} bytes, at most {MAX_EXTENSION} are read")
        raw = self._exactly(entry.size)
        self._skip(-entry.size % BLOCK)
        return raw

    def _exactly(self, count: int) -> bytes:
        parts = []
        while count:
            part = self._some(count)
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def _skip(self, count: int) -> None:
        while count:
            count -= len(self._some(min(count, PIECE)))

    def _some(self, count: int) -> bytes:
        part = self._stream.read(count)
        if not part:
            raise TarError("breaks off in the middle")
        return part
