"""The client side of a connection: many requests in flight, each ended by one callback.

Callbacks rather than a task a request, and one sweep over what is in flight rather than a timer a request: both
are most of what a request would cost otherwise.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable

import msgspec

from copydesk.common.rpc.address import Address, UnixAddress
from copydesk.common.rpc.codec import DEFAULT_MAX_FRAME_BYTES, FRAME_OVERHEAD_BYTES, Parser
from copydesk.common.rpc.connection import FrameConnection
from copydesk.common.rpc.errors import RpcConnectError, RpcHandshakeError, RpcPingError, UnexpectedFrameError
from copydesk.common.rpc.frames import (
    PROTOCOL_VERSION,
    AnyFrame,
    Cancel,
    Chunk,
    Drain,
    Fault,
    Hello,
    Load,
    Ping,
    Pong,
    Priority,
    Request,
    Response,
    Status,
)
from copydesk.common.rpc.pending import OnChunk, OnReply, PendingRequests
from copydesk.common.rpc.tokens import shown_token
from copydesk.common.telemetry import get_logger

CLOSE_SECONDS = 1.0
"""How long `close` lets the transport write what is left before it drops the connection."""

_CONNECTION_LOST = Fault("connection_lost", "the connection to the pod was lost")
_DEADLINE_EXCEEDED = Fault("deadline_exceeded", "no answer before the deadline")
_TOO_LARGE = Fault("frame_too_large", f"the payload does not fit a frame of {DEFAULT_MAX_FRAME_BYTES} bytes")

_REFUSED = (
    "closed by the server: it refused the token, the protocol version or the certificate, or one side wants TLS; "
    "its log says which"
)

_log = get_logger(__name__)


class Channel:
    """One connection to one server; make it with `open`, and use it on the event loop that it was opened on.

    `peer` is the server's greeting, `load` the last load it told, `draining` whether it takes no more requests,
    `closed` whether the connection is gone for good: a channel does not reconnect.

    Another party may use the connection as well: it reads by a parser of its own (`tap`), which keeps the answers
    that are its own to itself, and writes whole frames (`write`). What it can not bring to an end itself it leaves
    to the channel (`adopt`). Its request ids must be none of `send`, which counts from 1.
    """

    __slots__ = (
        "_connection",
        "_gone",
        "_greeted",
        "_last_id",
        "_loop",
        "_on_close",
        "_on_drain",
        "_opened",
        "_pending",
        "_pings",
        "address",
        "closed",
        "draining",
        "load",
        "peer",
    )

    peer: Hello

    def __init__(
        self,
        address: Address,
        on_drain: Callable[[Channel], None] | None,
        on_close: Callable[[Channel], None] | None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._connection = FrameConnection(self._on_hello, self._on_lost, DEFAULT_MAX_FRAME_BYTES)
        self._gone: asyncio.Future[None] = self._loop.create_future()
        self._greeted: asyncio.Future[None] = self._loop.create_future()
        self._last_id = 0
        self._on_drain = on_drain
        self._on_close = on_close
        self._opened = False
        self._pending = PendingRequests(self._loop, self._on_expired)
        self._pings: dict[int, asyncio.Future[Pong]] = {}
        self.address = address
        self.closed = False
        self.draining = False
        self.load = Load()

    @classmethod
    async def open(
        cls,
        address: Address,
        *,
        name: str,
        token: str = "",
        tls: ssl.SSLContext | None = None,
        tls_name: str = "",
        timeout: float = 2.0,
        on_drain: Callable[[Channel], None] | None = None,
        on_close: Callable[[Channel], None] | None = None,
    ) -> Channel:
        """Connect, greet and wait for the server's greeting, all within `timeout` seconds.

        `name` says who calls, for the server's logs; of several lines of `token` the first is shown. `on_drain` is
        called once when the server announces that it takes no new requests, `on_close` once when the connection
        ends, before the requests on it are ended. With `tls`, the server's certificate must be for `tls_name`, or
        for the address if that is empty.
        Raises `RpcConnectError` and `RpcHandshakeError`.
        """
        channel = cls(address, on_drain, on_close)
        connected = False
        try:
            async with asyncio.timeout(timeout):
                await channel._connect(tls, tls_name)
                connected = True
                await channel._greet(Hello(PROTOCOL_VERSION, name, shown_token(token)))
        except TimeoutError:
            channel._connection.abort()
            reason = f"no answer within {timeout:g} s"
            raise (RpcHandshakeError if connected else RpcConnectError)(address, reason) from None
        except BaseException:
            channel._connection.abort()
            raise
        channel._opened = True
        if channel.draining:
            channel._loop.call_soon(channel._notify, on_drain, "on_drain")
        return channel

    async def _connect(self, tls: ssl.SSLContext | None, name: str) -> None:
        loop, address = self._loop, self.address
        try:
            if isinstance(address, UnixAddress):
                host = (name or "localhost") if tls else None  # a certificate cannot name a path
                await loop.create_unix_connection(self._protocol, address.path, ssl=tls, server_hostname=host)
            else:
                host = (name or None) if tls else None
                await loop.create_connection(
                    self._protocol, address.host, address.port, ssl=tls, server_hostname=host
                )
        except TimeoutError:
            raise
        except (
            OSError,
            ValueError,
            OverflowError,
        ) as error:  # the latter two: no address at all, says the resolver
            raise RpcConnectError(address, str(error) or type(error).__name__) from error

    def _protocol(self) -> FrameConnection:
        return self._connection

    async def _greet(self, hello: Hello) -> None:
        self._connection.send(hello)
        await self._greeted
        if self.closed:
            raise RpcConnectError(self.address, "the connection was lost right after the greeting")

    @property
    def in_flight(self) -> int:
        """How many requests wait for their end."""
        return len(self._pending)

    def send(
        self,
        payload: bytes,
        *,
        deadline_ms: int,
        on_reply: OnReply,
        on_chunk: OnChunk | None = None,
        priority: Priority = Priority.INTERACTIVE,
        trace: str = "",
    ) -> int:
        """Send a request and return its id. `payload` is one msgpack value, `trace` the span that it is a part of.

        `on_reply` is called exactly once, whatever ends the request (a lost connection gives `UNAVAILABLE`, fault
        `connection_lost`; the deadline passing here `DEADLINE_EXCEEDED`), and never from within this call; only
        after `cancel` it is not called. Never raises for reasons of the network.
        """
        self._last_id = request_id = self._last_id + 1
        if self.closed:
            self._end_soon(request_id, on_reply, Status.UNAVAILABLE, _CONNECTION_LOST)
        elif deadline_ms <= 0:
            self._end_soon(request_id, on_reply, Status.DEADLINE_EXCEEDED, _DEADLINE_EXCEEDED)
        elif len(payload) > DEFAULT_MAX_FRAME_BYTES - FRAME_OVERHEAD_BYTES:
            self._end_soon(request_id, on_reply, Status.INVALID, _TOO_LARGE)
        else:
            self._connection.send(Request(request_id, deadline_ms, priority, msgspec.Raw(payload), trace))
            self._pending.add(request_id, self._loop.time() + deadline_ms / 1000, on_reply, on_chunk)
        return request_id

    def tap(self, parser: Parser) -> None:
        """Have `parser` cut what the server sends from now on, and keep from the channel what it will.

        Once a channel, after the greeting.
        """
        self._connection.tap(parser)

    @property
    def write(self) -> Callable[[bytes], None]:
        """Writes whole frames at once, ahead of those that `send` has queued in this turn of the event loop.

        A function that may be kept; on a connection that is going away it does nothing.
        """
        return self._connection.write

    def adopt(self, request_id: int, deadline: float, on_reply: OnReply, on_chunk: OnChunk | None = None) -> None:
        """Expect the end of a request that somebody else has written, by `deadline` in the event loop's time.

        From then on it is like one that was sent by `send`: `on_reply` is called exactly once, whatever has come
        to pass already, and never from within this call; `cancel` gives it up.
        """
        if self.closed:
            self._end_soon(request_id, on_reply, Status.UNAVAILABLE, _CONNECTION_LOST)
        else:
            self._pending.add(request_id, deadline, on_reply, on_chunk)

    def cancel(self, request_id: int) -> None:
        """Give a request up: its callbacks are not called any more. An id that is not in flight is ignored."""
        if self._pending.discard(request_id):
            self._connection.send(Cancel(request_id))

    async def call(
        self, payload: bytes, *, deadline_ms: int, priority: Priority = Priority.INTERACTIVE
    ) -> Response:
        """Send a request and wait for its end; cancelling the waiting task cancels the request."""
        answer: asyncio.Future[Response] = self._loop.create_future()

        def settle(response: Response) -> None:
            if not answer.done():
                answer.set_result(response)

        request_id = self.send(payload, deadline_ms=deadline_ms, on_reply=settle, priority=priority)
        try:
            return await answer
        finally:
            self.cancel(request_id)

    async def ping(self, timeout: float = 2.0) -> Pong:
        """Ask for a sign of life; raises `RpcPingError` when none comes within `timeout` seconds."""
        if self.closed:
            raise RpcPingError(self.address, "the channel is closed")
        self._last_id = ping_id = self._last_id + 1
        answer: asyncio.Future[Pong] = self._loop.create_future()
        self._pings[ping_id] = answer
        self._connection.send(Ping(ping_id))
        try:
            async with asyncio.timeout(timeout):
                return await answer
        except TimeoutError:
            raise RpcPingError(self.address, f"no answer within {timeout:g} s") from None
        finally:
            del self._pings[ping_id]

    async def close(self) -> None:
        """Close the connection; what is in flight ends with `UNAVAILABLE`. Does nothing the second time."""
        self._finish()
        self._connection.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await asyncio.shield(self._gone)
        self._connection.abort()

    def _on_hello(self, frame: AnyFrame) -> None:
        if not isinstance(frame, Hello):
            raise UnexpectedFrameError(type(frame).__name__, "the server has not greeted yet")
        if frame.version != PROTOCOL_VERSION:
            reason = f"the server speaks protocol version {frame.version}, this client {PROTOCOL_VERSION}"
            raise RpcHandshakeError(self.address, reason)
        self.peer = frame
        self.load = Load(capacity=max(1, frame.capacity))
        self._connection.on_frame = self._on_frame
        if not self._greeted.done():
            self._greeted.set_result(None)

    def _on_frame(self, frame: AnyFrame) -> None:
        if isinstance(frame, Response):
            self.load = frame.load
            self._pending.end(frame)
        elif isinstance(frame, Chunk):
            self._pending.stream(frame)
        elif isinstance(frame, Pong):
            self._on_pong(frame)
        elif isinstance(frame, Drain):
            self._on_draining()
        else:
            raise UnexpectedFrameError(type(frame).__name__, "a server must not send it")

    def _on_pong(self, pong: Pong) -> None:
        self.load = pong.load
        waiting = self._pings.get(pong.id)
        if waiting is not None and not waiting.done():
            waiting.set_result(pong)

    def _on_draining(self) -> None:
        if not self.draining:
            self.draining = True
            self._notify(self._on_drain, "on_drain")

    def _on_expired(self, request_id: int) -> None:
        self._connection.send(Cancel(request_id))
        self._end(request_id, Status.DEADLINE_EXCEEDED, _DEADLINE_EXCEEDED)

    def _on_lost(self, error: Exception | None) -> None:
        if not self._greeted.done():
            self._greeted.set_exception(self._handshake_error(error))
        elif error is not None and self._opened:
            _log.warning("rpc_connection_lost", address=str(self.address), error=str(error))
        self._finish()
        self._gone.set_result(None)

    def _handshake_error(self, error: Exception | None) -> RpcHandshakeError:
        if isinstance(error, RpcHandshakeError):
            return error
        # A server that refuses a certificate, or wants TLS, mostly resets the connection without a word.
        told = error is not None and not isinstance(error, ConnectionError)
        return RpcHandshakeError(self.address, str(error) if told else _REFUSED)

    def _finish(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._pending.stop_sweeping()
        self._notify(self._on_close, "on_close")
        for ping in self._pings.values():
            if not ping.done():
                ping.set_exception(RpcPingError(self.address, "the connection was lost"))
        for request_id in self._pending.ids():
            self._end(request_id, Status.UNAVAILABLE, _CONNECTION_LOST)

    def _notify(self, callback: Callable[[Channel], None] | None, name: str) -> None:
        if callback is None or not self._opened:
            return
        try:
            callback(self)
        except Exception:
            _log.exception("rpc_callback_failed", callback=name, address=str(self.address))

    def _end(self, request_id: int, status: Status, fault: Fault) -> None:
        self._pending.end(Response(request_id, status, self.load, fault=fault))

    def _end_soon(self, request_id: int, on_reply: OnReply, status: Status, fault: Fault) -> None:
        self._pending.add(request_id, self._loop.time() + CLOSE_SECONDS, on_reply, None)
        self._loop.call_soon(self._end, request_id, status, fault)
