"""A layer's archive, decompressed as it is read, with its digest."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Callable
from typing import BinaryIO

import zstandard

from copydesk.imagefetcher.convert.errors import LayerError
from copydesk.imagefetcher.convert.tar_reader import Readable

MAX_WINDOW = 128 << 20
"""The most memory that a zstd layer may ask for: that of `zstd --long=27`, which decoders accept unasked."""
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE = b"\x2a\x4d\x18"
_PIECE = 1 << 20


class LayerStream:
    """The plain bytes of a layer file. What compressed it is told by its first bytes, as media types are often
    wrong.

    `progress` hears of plain bytes read. `drain` reads to the end and returns the digest of all plain bytes: the
    layer's `diff_id`. Raises LayerError for bytes that do not decompress.
    """

    def __init__(self, file: BinaryIO, progress: Callable[[int], None] = lambda _: None) -> None:
        self._progress = progress
        self._plain = _opened(file)
        self._hash = hashlib.sha256()
        self._pending = 0

    def read(self, size: int) -> bytes:
        """At most `size` plain bytes, none at the end."""
        try:
            part = self._plain.read(size)
        except (OSError, EOFError, zlib.error, zstandard.ZstdError) as error:
            raise LayerError(f"does not decompress: {error}") from error
        self._hash.update(part)
        self._pending += len(part)
        if self._pending >= _PIECE or not part:
            self._progress(self._pending)
            self._pending = 0
        return part

    def drain(self) -> str:
        """Reads what is left; returns the digest of everything."""
        while self.read(_PIECE):
            pass
        return "sha256:" + self._hash.hexdigest()


def _opened(file: BinaryIO) -> Readable:
    start = file.read(4)
    file.seek(0)
    if start.startswith(_GZIP):
        return gzip.GzipFile(fileobj=file, mode="rb")
    if start == _ZSTD or (start[1:] == _ZSTD_SKIPPABLE and 0x50 <= start[0] <= 0x5F):
        decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW)
        # A frame that breaks off just ends here: the archive in it, or the layer's diff_id, tells.
        return decompressor.stream_reader(file, read_across_frames=True, closefd=False)
    return file
