"""Frames to bytes and back: a four-byte big-endian length, then one msgpack array.

Nothing here does I/O. The parser takes bytes in whatever pieces the network hands over, and keeps no more than
one unfinished frame.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Protocol

import msgspec

from copydesk.common.rpc.errors import FrameDecodeError, FrameTooLargeError
from copydesk.common.rpc.frames import AnyFrame

HEADER_BYTES = 4
DEFAULT_MAX_FRAME_BYTES = 4 << 20

FRAME_OVERHEAD_BYTES = 256
"""An upper bound on what a frame adds to the payload it carries, header included."""

pack_length = struct.Struct(">I").pack
unpack_length = struct.Struct(">I").unpack_from
encode_body = msgspec.msgpack.Encoder().encode
_decode_body = msgspec.msgpack.Decoder(AnyFrame).decode


def encode_frame(frame: AnyFrame) -> bytes:
    """Return the bytes of `frame`, header included."""
    body = encode_body(frame)
    return pack_length(len(body)) + body


def decode_body(body: bytes) -> AnyFrame:
    """Decode what stands behind a header; raises `FrameDecodeError`."""
    try:
        return _decode_body(body)
    except (msgspec.DecodeError, ValueError, OverflowError, RecursionError) as error:
        raise FrameDecodeError(len(body), str(error)) from error


class Parser(Protocol):
    """Cuts a stream of bytes into frames, of which it may keep some to itself."""

    max_frame_bytes: int

    @property
    def in_frame(self) -> bool:
        """Whether a frame has begun and not ended."""

    def feed(self, data: bytes) -> Iterable[AnyFrame]:
        """Return the frames that `data` completes, in order; raise `FrameError`, at once or in their course."""


class FrameParser:
    """Cuts a stream of bytes into frames. After an error it must not be fed again."""

    __slots__ = ("_buffer", "_wanted", "max_frame_bytes")

    def __init__(self, max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._buffer = bytearray()
        self._wanted = 0  # bytes the buffer must hold before another look at it is worth while

    @property
    def in_frame(self) -> bool:
        """Whether a frame has begun and not ended."""
        return bool(self._buffer)

    def rest(self) -> bytes:
        """Return what has come of a frame that has not ended, for another parser to go on with, and forget it."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        return rest

    def feed(self, data: bytes) -> Iterator[AnyFrame]:
        """Yield each frame that `data` completes, in order, then raise the `FrameError` that follows them, if any.

        The iterator must be consumed, or the parser abandoned.
        """
        if self._buffer:
            self._buffer += data
            if len(self._buffer) < self._wanted:
                return
            data = bytes(self._buffer)
            self._buffer.clear()
        position, end = 0, len(data)
        while end - position >= HEADER_BYTES:
            (size,) = unpack_length(data, position)
            if size > self.max_frame_bytes:
                raise FrameTooLargeError(size, self.max_frame_bytes)
            start = position + HEADER_BYTES
            if end - start < size:
                self._wanted = HEADER_BYTES + size
                break
            position = start + size
            yield decode_body(data[start:position])
        else:
            self._wanted = HEADER_BYTES
        if position < end:
            self._buffer += data[position:]
