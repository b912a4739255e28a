"""The client side of a connection: many requests in flight, each ended by one callback.

Callbacks rather than a task a request, and one sweep over what is in flight rather than a timer a request: both
are most of what a request would cost otherwise.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from math import inf

import msgspec
from copydesk.common.rpc.address import Address, UnixAddress
from copydesk.common.rpc.codec import DEFAULT_MAX_FRAME_BYTES, FRAME_OVERHEAD_BYTES
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
from copydesk.common.telemetry import get_logger

SWEEP_SECONDS = 0.005
"""The least time between two sweeps: a deadline is noticed at most this late."""

CLOSE_SECONDS = 1.0
"""How long `close` lets the transport write what is left before it drops the connection."""

_CONNECTION_LOST = Fault("connection_lost", "the connection to the pod was lost")
_DEADLINE_EXCEEDED = Fault("deadline_exceeded", "no answer before the deadline")

_log = get_logger(__name__)


class _Pending:
    __slots__ = ("deadline", "on_chunk", "on_reply")

    def __init__(
        self,
        deadline: float,
        on_reply: Callable[[Response], None],
        on_chunk: Callable[[msgspec.Raw], None] | None,
    ) -> None:
        self.deadline = deadline
        self.on_reply = on_reply
        self.on_chunk = on_chunk


class Channel:
    """One connection to one server; make it with `open`, and use it on the event loop that it was opened on.

    `peer` is the server's greeting, `load` the last load it told, `draining` whether it takes no more requests,
    `closed` whether the connection is gone for good: a channel does not reconnect.
    """

    __slots__ = (
        "_connection",
        "_gone",
        "_hello",
        "_last_id",
        "_loop",
        "_on_close",
        "_on_drain",
        "_pending",
        "_pings",
        "_sweep_at",
        "_sweeper",
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
        self._connection = FrameConnection(self._on_frame, self._on_lost, DEFAULT_MAX_FRAME_BYTES)
        self._gone = self._loop.create_future()
        self._hello: asyncio.Future[Hello] | None = self._loop.create_future()
        self._last_id = 0
        self._on_drain = on_drain
        self._on_close = on_close
        self._pending: dict[int, _Pending] = {}
        self._pings: dict[int, asyncio.Future[Pong]] = {}
        self._sweep_at = inf
        self._sweeper: asyncio.TimerHandle | None = None
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
        timeout: float = 2.0,
        on_drain: Callable[[Channel], None] | None = None,
        on_close: Callable[[Channel], None] | None = None,
    ) -> Channel:
        """Connect, greet and wait for the server's greeting, all within `timeout` seconds.

        `name` says who calls, for the server's logs. `on_drain` is called once when the server announces that it
        takes no new requests, `on_close` once when the connection ends, before the requests on it are answered.
        Raises `RpcConnectError` and `RpcHandshakeError`.
        """
        channel = cls(address, on_drain, on_close)
        connected = False
        try:
            async with asyncio.timeout(timeout):
                await channel._connect(tls)
                connected = True
                channel.peer = await channel._greet(Hello(PROTOCOL_VERSION, name, token))
        except TimeoutError:
            channel._connection.abort()
            reason = f"no answer within {timeout:g} s"
            raise (RpcHandshakeError if connected else RpcConnectError)(address, reason) from None
        except BaseException:
            channel._connection.abort()
            raise
        return channel

    async def _connect(self, tls: ssl.SSLContext | None) -> None:
        loop, address = self._loop, self.address
        try:
            if isinstance(address, UnixAddress):
                server_name = "localhost" if tls else None
                await loop.create_unix_connection(
                    lambda: self._connection, address.path, ssl=tls, server_hostname=server_name
                )
            else:
                await loop.create_connection(lambda: self._connection, address.host, address.port, ssl=tls)
        except TimeoutError:
            raise
        except OSError as error:
            raise RpcConnectError(address, str(error) or type(error).__name__) from error

    async def _greet(self, hello: Hello) -> Hello:
        assert self._hello is not None
        self._connection.send(hello)
        peer = await self._hello
        self._hello = None
        if peer.version != PROTOCOL_VERSION:
            reason = f"server speaks protocol version {peer.version}, this client {PROTOCOL_VERSION}"
            raise RpcHandshakeError(self.address, reason)
        return peer

    @property
    def in_flight(self) -> int:
        """How many requests wait for their end."""
        return len(self._pending)

    def send(
        self,
        payload: bytes,
        *,
        deadline_ms: int,
        on_reply: Callable[[Response], None],
        on_chunk: Callable[[msgspec.Raw], None] | None = None,
        priority: Priority = Priority.INTERACTIVE,
    ) -> int:
        """Send a request and return its id. `payload` is one msgpack value.

        `on_reply` is called exactly once, whatever ends the request (a lost connection gives `UNAVAILABLE`, fault
        `connection_lost`; the deadline passing here `DEADLINE_EXCEEDED`), and never from within this call; only
        after `cancel` it is not called. Never raises for reasons of the network.
        """
        self._last_id = request_id = self._last_id + 1
        deadline = self._loop.time() + deadline_ms / 1000
        self._pending[request_id] = _Pending(deadline, on_reply, on_chunk)
        if self.closed:
            self._end_soon(request_id, Status.UNAVAILABLE, _CONNECTION_LOST)
        elif deadline_ms <= 0:
            self._end_soon(request_id, Status.DEADLINE_EXCEEDED, _DEADLINE_EXCEEDED)
        elif len(payload) > DEFAULT_MAX_FRAME_BYTES - FRAME_OVERHEAD_BYTES:
            self._end_soon(request_id, Status.INVALID, _too_large(len(payload)))
        else:
            self._connection.send(Request(request_id, deadline_ms, priority, msgspec.Raw(payload)))
            if deadline < self._sweep_at:
                self._sweep_by(deadline)
        return request_id

    def cancel(self, request_id: int) -> None:
        """Give a request up: its callbacks are not called any more. An id that is not in flight is ignored."""
        if self._pending.pop(request_id, None) is not None:
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
        self._pings[ping_id] = answer = self._loop.create_future()
        self._connection.send(Ping(ping_id))
        try:
            async with asyncio.timeout(timeout):
                return await answer
        except TimeoutError:
            raise RpcPingError(self.address, f"no answer within {timeout:g} s") from None
        finally:
            self._pings.pop(ping_id, None)

    async def close(self) -> None:
        """Close the connection; what is in flight ends with `UNAVAILABLE`. Does nothing the second time."""
        self._finish()
        self._connection.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await asyncio.shield(self._gone)
        self._connection.abort()

    def _on_frame(self, frame: AnyFrame) -> None:
        kind = type(frame)
        if self._hello is not None:
            self._on_hello(frame)
        elif kind is Response:
            self._on_response(frame)  # type: ignore[arg-type]
        elif isinstance(frame, Chunk):
            self._on_chunk(frame)
        elif isinstance(frame, Pong):
            self._on_pong(frame)
        elif isinstance(frame, Drain):
            self._on_draining()
        else:
            raise UnexpectedFrameError(kind.__name__, "a server must not send it")

    def _on_hello(self, frame: AnyFrame) -> None:
        if not isinstance(frame, Hello):
            raise UnexpectedFrameError(type(frame).__name__, "the server has not greeted yet")
        self.load = Load(capacity=max(1, frame.capacity))
        if self._hello is not None and not self._hello.done():
            self._hello.set_result(frame)

    def _on_response(self, response: Response) -> None:
        self.load = response.load
        pending = self._pending.pop(response.id, None)
        if pending is not None:
            try:
                pending.on_reply(response)
            except Exception:
                _log.exception("rpc_callback_failed", callback="on_reply", address=str(self.address))

    def _on_chunk(self, chunk: Chunk) -> None:
        pending = self._pending.get(chunk.id)
        if pending is None or pending.on_chunk is None:
            return
        try:
            pending.on_chunk(chunk.payload)
        except Exception:
            _log.exception("rpc_callback_failed", callback="on_chunk", address=str(self.address))

    def _on_pong(self, pong: Pong) -> None:
        self.load = pong.load
        waiting = self._pings.get(pong.id)
        if waiting is not None and not waiting.done():
            waiting.set_result(pong)

    def _on_draining(self) -> None:
        if self.draining:
            return
        self.draining = True
        self._notify(self._on_drain, "on_drain")

    def _on_lost(self, error: Exception | None) -> None:
        if self._hello is not None and not self._hello.done():
            reason = str(error) if error else "closed by the server: it refused the token or the protocol version"
            self._hello.set_exception(RpcHandshakeError(self.address, reason))
        elif error is not None:
            _log.warning("rpc_connection_lost", address=str(self.address), error=str(error))
        self._finish()
        if not self._gone.done():
            self._gone.set_result(None)

    def _finish(self) -> None:
        if self.closed:
            return
        self.closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._notify(self._on_close, "on_close")
        for ping in self._pings.values():
            if not ping.done():
                ping.set_exception(RpcPingError(self.address, "the connection was lost"))
        for request_id in tuple(self._pending):
            self._end(request_id, Status.UNAVAILABLE, _CONNECTION_LOST)

    def _notify(self, callback: Callable[[Channel], None] | None, name: str) -> None:
        if callback is None or self._hello is not None:
            return
        try:
            callback(self)
        except Exception:
            _log.exception("rpc_callback_failed", callback=name, address=str(self.address))

    def _end_soon(self, request_id: int, status: Status, fault: Fault) -> None:
        self._loop.call_soon(self._end, request_id, status, fault)

    def _end(self, request_id: int, status: Status, fault: Fault) -> None:
        pending = self._pending.pop(request_id, None)
        if pending is None:
            return
        try:
            pending.on_reply(Response(request_id, status, self.load, fault=fault))
        except Exception:
            _log.exception("rpc_callback_failed", callback="on_reply", address=str(self.address))

    def _sweep_by(self, when: float) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._sweep_at = when
        self._sweeper = self._loop.call_at(when, self._sweep)

    def _sweep(self) -> None:
        self._sweeper, self._sweep_at = None, inf
        now = self._loop.time()
        expired = [request_id for request_id, pending in self._pending.items() if pending.deadline <= now]
        for request_id in expired:
            if request_id in self._pending:
                self._connection.send(Cancel(request_id))
                self._end(request_id, Status.DEADLINE_EXCEEDED, _DEADLINE_EXCEEDED)
        if self._pending and not self.closed:
            earliest = min(pending.deadline for pending in self._pending.values())
            self._sweep_by(max(earliest, now + SWEEP_SECONDS))


def _too_large(size: int) -> Fault:
    return Fault(
        "frame_too_large", f"a payload of {size} bytes exceeds the frame limit of {DEFAULT_MAX_FRAME_BYTES}"
    )
