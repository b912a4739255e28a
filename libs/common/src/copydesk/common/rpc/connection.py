"""One connection as a stream of frames: what client and server have in common.

Writes are coalesced: all frames sent during one turn of the event loop leave in one `write`. uvloop does not do
that by itself, and it is worth half the throughput when requests are small.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable
from typing import cast

from copydesk.common.rpc.codec import FrameParser, Parser, encode_body, pack_length
from copydesk.common.rpc.errors import RpcError, WriteBufferFullError
from copydesk.common.rpc.frames import AnyFrame
from copydesk.common.telemetry import get_logger

MAX_WRITE_BUFFER_BYTES = 32 << 20
"""How much may wait for a peer that does not read before the connection is given up."""

_TCP_OPTIONS = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    # A peer whose machine is gone sends no reset: notice it within 10 + 3 x 5 seconds of silence.
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)

_log = get_logger(__name__)


class FrameConnection(asyncio.Protocol):
    """Frames in and out of one transport.

    `on_frame` gets each frame in order; it may be replaced, which is how a connection comes out of its handshake.
    So may the parser, by `tap`.
    `on_lost` is called exactly once if the connection was ever made, with the
    error that ended it, or None if either side closed it in an orderly way; no frame follows.
    """

    __slots__ = (
        "_error",
        "_loop",
        "_made",
        "_on_lost",
        "_out",
        "_own",
        "_transport",
        "closing",
        "on_frame",
        "parser",
    )

    def __init__(
        self,
        on_frame: Callable[[AnyFrame], None],
        on_lost: Callable[[Exception | None], None],
        max_frame_bytes: int,
        on_made: Callable[[], None] | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.on_frame = on_frame
        self._on_lost = on_lost
        self._made = on_made
        self._own = FrameParser(max_frame_bytes)
        self.parser: Parser = self._own
        self._transport: asyncio.Transport | None = None
        self._out: list[bytes] = []
        self._error: Exception | None = None
        self.closing = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start on `transport`; called by the event loop."""
        self._transport = cast(asyncio.Transport, transport)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            for level, option, value in _TCP_OPTIONS:
                sock.setsockopt(level, option, value)
        if self._made is not None:
            self._made()

    def data_received(self, data: bytes) -> None:
        """Cut `data` into frames and hand them on; called by the event loop."""
        parser = self.parser
        try:
            for frame in parser.feed(data):
                if not self.closing:  # the parser needs to be fed to its end all the same
                    self.on_frame(frame)
            if parser is not self.parser:
                self._pass_on()
        except RpcError as error:
            self.abort(error)
        except Exception as error:
            _log.exception("rpc_connection_bug")
            self.abort(error)

    def tap(self, parser: Parser) -> None:
        """Have `parser` cut what comes from now on; it also gets what has come of a frame that has not ended.

        What belongs to frames that are being handed on at this moment is still cut by the parser before.
        """
        self.parser = parser
        self._pass_on()

    def _pass_on(self) -> None:
        rest = self._own.rest()
        if rest:
            self.data_received(rest)

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end; called by the event loop."""
        self.closing = True
        self._out.clear()
        self._on_lost(self._error or exc)

    def send(self, frame: AnyFrame) -> None:
        """Queue `frame` for this turn's write; on a connection that is going away it is dropped."""
        if self.closing:
            return
        out = self._out
        if not out:
            self._loop.call_soon(self._flush)
        body = encode_body(frame)
        out.append(pack_length(len(body)))
        out.append(body)

    def _flush(self) -> None:
        if self._out and self._transport is not None:
            data = b"".join(self._out)
            self._out.clear()
            self._put(self._transport, data)

    def write(self, data: bytes) -> None:
        """Write whole frames at once, ahead of those that are queued; none on a connection that is going away."""
        if not self.closing and self._transport is not None:
            self._put(self._transport, data)

    def _put(self, transport: asyncio.Transport, data: bytes) -> None:
        transport.write(data)
        waiting = transport.get_write_buffer_size()
        if waiting > MAX_WRITE_BUFFER_BYTES:
            self.abort(WriteBufferFullError(waiting, MAX_WRITE_BUFFER_BYTES))

    def pause_reading(self) -> None:
        """Leave what the peer sends to the operating system."""
        if self._transport is not None and not self.closing:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read on."""
        if self._transport is not None and not self.closing:
            self._transport.resume_reading()

    def detach(self) -> socket.socket | None:
        """Let go of the connection as it is: return its socket, and report the end without having closed it.

        Reading must be paused. None, and nothing has happened, while a frame has come or gone in part only.
        """
        transport = self._transport
        if self.closing or transport is None:
            return None
        self._flush()
        if self.parser.in_frame or transport.get_write_buffer_size():
            return None
        kept = socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))
        self.abort()
        return kept

    def close(self) -> None:
        """Write what is queued, then close. `on_lost` follows once that is done."""
        if self.closing:
            return
        self._flush()
        self.closing = True
        if self._transport is not None:
            self._transport.close()

    def finish(self) -> None:
        """Write what is queued and wait for the peer to close; what it still sends is dropped.

        Closing at once with bytes unread would reset the connection, and the reset can overtake the last answers.
        The caller bounds the wait with `abort`.
        """
        transport = self._transport
        if self.closing or transport is None or not transport.can_write_eof():
            self.close()
            return
        self._flush()
        self.closing = True
        with contextlib.suppress(OSError):  # the peer has reset the connection, and the loop is about to say so
            transport.write_eof()

    def abort(self, error: Exception | None = None) -> None:
        """Drop the connection now, for the reason `error`."""
        if self._error is None:
            self._error = error
        self.closing = True
        if self._transport is not None:
            self._transport.abort()
