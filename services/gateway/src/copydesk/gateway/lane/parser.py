"""A pod's frames, most of which the lane keeps to itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from copydesk.common.rpc.codec import DEFAULT_MAX_FRAME_BYTES, decode_body
from copydesk.common.rpc.errors import FrameTooLargeError
from copydesk.common.rpc.frames import AnyFrame
from copydesk.gateway.lane.seams import Port


class LaneParser:
    """Takes the place of a channel's `FrameParser`, and leaves to Python what is not the lane's."""

    __slots__ = ("_port", "max_frame_bytes")

    def __init__(self, port: Port) -> None:
        self._port = port
        self.max_frame_bytes = DEFAULT_MAX_FRAME_BYTES

    @property
    def in_frame(self) -> bool:
        """Whether a frame has begun and not ended."""
        return self._port.in_frame

    def feed(self, data: bytes) -> Iterable[AnyFrame]:
        """Return the frames that are Python's. Raises `FrameTooLargeError`, and `FrameDecodeError` as it goes."""
        try:
            rest = self._port.feed(data)
        except OverflowError as error:
            size, rest = error.args
            return self._frames_before(size, rest or [])
        return () if rest is None else map(decode_body, rest)

    def _frames_before(self, size: int, bodies: list[bytes]) -> Iterator[AnyFrame]:
        yield from map(decode_body, bodies)
        raise FrameTooLargeError(size, self.max_frame_bytes)
