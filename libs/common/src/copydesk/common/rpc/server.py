"""The server side: accepts connections, checks greetings, and hands requests to one handler."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from copydesk.common.rpc.address import Address, TcpAddress, UnixAddress, bound_address
from copydesk.common.rpc.codec import DEFAULT_MAX_FRAME_BYTES, FRAME_OVERHEAD_BYTES
from copydesk.common.rpc.connection import FrameConnection
from copydesk.common.rpc.errors import RpcError, RpcListenError, UnexpectedFrameError
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
    Request,
    Response,
    Status,
)
from copydesk.common.rpc.inbound import InboundCall
from copydesk.common.rpc.tokens import is_accepted
from copydesk.common.telemetry import get_logger

HANDSHAKE_SECONDS = 5.0
"""How long a client that has connected may take to greet."""

CLOSE_SECONDS = 1.0
"""How long `close` lets answers already given be written before it drops the connections."""

BACKLOG = 1024

MAX_HELLO_BYTES = 16 << 10
"""The frame limit before the greeting: a stranger gets no more memory than that."""

MAX_PEER_NAME = 64

_DRAINING = Fault("draining", "this pod takes no new requests")
_EXPIRED = Fault("deadline_exceeded", "the request arrived after its deadline")
_INTERNAL = Fault("internal", "the request failed for a reason of the server's own")

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Released:
    """A connection between two requests, for another server to `adopt`; `peer` is the client's name."""

    sock: socket.socket
    peer: str


class RpcServer:
    """Serves requests from any number of connections on the event loop that `start` runs on.

    `handler` is called for each request and must not block; it answers the call whenever it likes. `hello` and
    `load` say who this server is and how busy, at the moment they are asked. Of several lines of `token` each is
    accepted.
    """

    def __init__(
        self,
        handler: Callable[[InboundCall], None],
        *,
        hello: Callable[[], Hello],
        load: Callable[[], Load],
        token: str = "",
        tls: ssl.SSLContext | None = None,
        max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES,
    ) -> None:
        self.handler = handler
        self.hello = hello
        self.load = load
        self.token = token
        self.max_frame_bytes = max_frame_bytes
        self.draining = False
        self.in_flight = 0
        self._tls = tls
        self._sessions: set[_Session] = set()
        self._listener: asyncio.Server | None = None
        self._unix_path: Path | None = None
        self._changed = asyncio.Event()

    @property
    def connections(self) -> int:
        """How many connections are open, those still greeting included."""
        return len(self._sessions)

    async def start(self, address: Address | socket.socket) -> Address:
        """Listen on `address`, or on a socket that is bound already, and say where; raises `RpcListenError`."""
        try:
            self._listener = await self._listen(address)
        except OSError as error:
            where = bound_address(address) if isinstance(address, socket.socket) else address
            raise RpcListenError(where, str(error)) from error
        if isinstance(address, UnixAddress):
            self._unix_path = Path(address.path)
            self._unix_path.chmod(0o600)
            return address
        return bound_address(self._listener.sockets[0])

    async def _listen(self, address: Address | socket.socket) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        timeout = HANDSHAKE_SECONDS if self._tls else None
        if isinstance(address, TcpAddress):
            return await loop.create_server(
                self._accept,
                address.host,
                address.port,
                ssl=self._tls,
                ssl_handshake_timeout=timeout,
                backlog=BACKLOG,
            )
        path, sock = (address.path, None) if isinstance(address, UnixAddress) else (None, address)
        if sock is not None and sock.family != socket.AF_UNIX:
            return await loop.create_server(
                self._accept, sock=sock, ssl=self._tls, ssl_handshake_timeout=timeout, backlog=BACKLOG
            )
        return await loop.create_unix_server(
            self._accept, path, sock=sock, ssl=self._tls, ssl_handshake_timeout=timeout, backlog=BACKLOG
        )

    def _accept(self) -> FrameConnection:
        return _Session(self).connection

    async def adopt(
        self, sock: socket.socket, *, peer: str | None = None, on_lost: Callable[[], None] | None = None
    ) -> None:
        """Serve a connection that was accepted elsewhere; `peer` names a client that was greeted there.

        `on_lost` is called once when the connection is no more; not if this raises `OSError`, since it is already.
        """
        session = _Session(self, peer, on_lost)
        timeout = HANDSHAKE_SECONDS if self._tls else None
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: session.connection, sock, ssl=self._tls, ssl_handshake_timeout=timeout
            )
        except OSError:
            sock.close()
            if session not in self._sessions:
                raise

    async def release(self, patience: float) -> Released | None:
        """Let go of the least busy connection, its client none the wiser; None if there is none that can be.

        New requests on it wait, unread, until those in flight are answered; if that takes more than `patience`
        seconds the connection stays. TLS connections stay too: what was negotiated cannot be handed on.
        """
        idle_first = sorted(filter(_Session.is_settled, self._sessions), key=_Session.in_flight)
        if self._tls is not None or not idle_first:
            return None
        session = idle_first[0]
        session.leaving = True
        session.connection.pause_reading()
        sock = None
        try:
            await self._all_ended(session, patience)
            if not session.in_flight() and not self.draining:
                sock = session.connection.detach()
        finally:
            if sock is None:
                session.leaving = False
                session.connection.resume_reading()
        return None if sock is None else Released(sock, session.peer)

    async def _all_ended(self, session: _Session, patience: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                while session.in_flight() and not self.draining:
                    self._changed.clear()
                    await self._changed.wait()

    def session_made(self, session: _Session) -> None:
        """A connection came to be."""
        self._sessions.add(session)

    def session_lost(self, session: _Session) -> None:
        """A connection is no more."""
        self._sessions.discard(session)
        self._changed.set()

    def call_ended(self) -> None:
        """A request was answered or given up."""
        self.in_flight -= 1
        self._changed.set()

    async def drain(self, timeout: float) -> bool:
        """Refuse what is new, wait up to `timeout` seconds for what is in flight; say whether all of it ended."""
        self.draining = True
        if self._listener is not None:
            self._listener.close()
        self._changed.set()
        for session in tuple(self._sessions):
            session.announce_drain()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while self.in_flight:
                    self._changed.clear()
                    await self._changed.wait()
        return self.in_flight == 0

    async def close(self) -> None:
        """Stop listening, write the answers already given, and close every connection."""
        if self._listener is not None:
            self._listener.close()
        if self._unix_path is not None:
            self._unix_path.unlink(missing_ok=True)
        for session in tuple(self._sessions):
            session.connection.finish()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                while self._sessions:
                    self._changed.clear()
                    await self._changed.wait()
        for session in tuple(self._sessions):
            session.connection.abort()


class _Session:
    """One connection of one client. It is the `CallOwner` of the calls that came on it."""

    __slots__ = (
        "_calls",
        "_greeting",
        "_lost",
        "_server",
        "connection",
        "leaving",
        "load",
        "now",
        "peer",
        "stream",
    )

    def __init__(
        self, server: RpcServer, greeted: str | None = None, on_lost: Callable[[], None] | None = None
    ) -> None:
        self._server = server
        self._calls: dict[int, InboundCall] = {}
        self._greeting: asyncio.TimerHandle | None = None
        self._lost = on_lost
        self.connection = FrameConnection(self._on_hello, self._on_lost, MAX_HELLO_BYTES, self._on_made)
        self.peer = greeted or ""
        self.leaving = False
        if greeted is not None:
            self._settle()
        self.load = server.load
        self.now = asyncio.get_running_loop().time
        self.stream: Callable[[Chunk], None] = self.connection.send

    def _on_made(self) -> None:
        self._server.session_made(self)
        if self.is_settled():
            self._announce_if_draining()
            return
        self._greeting = asyncio.get_running_loop().call_later(HANDSHAKE_SECONDS, self._greeting_late)

    def _greeting_late(self) -> None:
        self._refuse(f"no greeting within {HANDSHAKE_SECONDS:g} s")

    def _refuse(self, reason: str) -> None:
        _log.warning("rpc_handshake_refused", peer=self.peer, reason=reason)
        self._stop_waiting()
        self.connection.close()

    def is_settled(self) -> bool:
        """Whether the client has been greeted and neither side is about to go."""
        return self.connection.on_frame == self._on_frame and not self.connection.closing and not self.leaving

    def in_flight(self) -> int:
        """How many requests of this client wait for their end."""
        return len(self._calls)

    def announce_drain(self) -> None:
        """Tell the client to send nothing new, once it has been greeted."""
        if self.connection.on_frame == self._on_frame:
            self.connection.send(Drain())

    def _on_frame(self, frame: AnyFrame) -> None:
        if isinstance(frame, Request):
            self._on_request(frame)
        elif isinstance(frame, Cancel):
            self._on_cancel(frame)
        elif isinstance(frame, Ping):
            self.connection.send(Pong(frame.id, self.load(), self._server.hello().state))
        else:
            raise UnexpectedFrameError(type(frame).__name__, "a client must not send it")

    def _on_hello(self, hello: AnyFrame) -> None:
        if not isinstance(hello, Hello):
            raise UnexpectedFrameError(type(hello).__name__, "the client has not greeted yet")
        self.peer = hello.peer[:MAX_PEER_NAME]
        if hello.version != PROTOCOL_VERSION:
            self._refuse(f"client speaks protocol version {hello.version}, this server {PROTOCOL_VERSION}")
        elif not is_accepted(self._server.token, hello.token):
            self._refuse("wrong token")
        else:
            self._greet()

    def _greet(self) -> None:
        self._stop_waiting()
        self._settle()
        self.connection.send(self._server.hello())
        self._announce_if_draining()

    def _settle(self) -> None:
        self.connection.on_frame = self._on_frame
        self.connection.parser.max_frame_bytes = self._server.max_frame_bytes

    def _announce_if_draining(self) -> None:
        if self._server.draining:
            self.connection.send(Drain())

    def _stop_waiting(self) -> None:
        if self._greeting is not None:
            self._greeting.cancel()
            self._greeting = None

    def _on_request(self, request: Request) -> None:
        server = self._server
        if request.id in self._calls:
            raise UnexpectedFrameError("Request", f"id {request.id} is in flight already")
        if server.draining:
            self._answer_at_once(request, Status.UNAVAILABLE, _DRAINING)
            return
        if request.deadline_ms <= 0:
            self._answer_at_once(request, Status.DEADLINE_EXCEEDED, _EXPIRED)
            return
        self._calls[request.id] = call = InboundCall(self, request, self.now())
        server.in_flight += 1
        try:
            server.handler(call)
        except Exception:
            _log.exception("rpc_handler_failed", peer=self.peer)
            call.fail(Status.INTERNAL, _INTERNAL)

    def _answer_at_once(self, request: Request, status: Status, fault: Fault) -> None:
        self.connection.send(Response(request.id, status, self.load(), fault=fault))

    def finish(self, response: Response) -> None:
        """Send the end of a call, and forget it."""
        if self._calls.pop(response.id, None) is None:
            return
        if len(response.payload) > self._server.max_frame_bytes - FRAME_OVERHEAD_BYTES:
            _log.error("rpc_answer_too_large", peer=self.peer, bytes=len(response.payload))
            response = Response(response.id, Status.INTERNAL, response.load, fault=_INTERNAL)
        self.connection.send(response)
        self._server.call_ended()

    def _on_cancel(self, cancel: Cancel) -> None:
        call = self._calls.pop(cancel.id, None)
        if call is not None:
            self._give_up(call)

    def _give_up(self, call: InboundCall) -> None:
        call.cancelled = True
        self._server.call_ended()
        if call.on_cancel is None:
            return
        try:
            call.on_cancel()
        except Exception:
            _log.exception("rpc_callback_failed", callback="on_cancel", peer=self.peer)

    def _on_lost(self, error: Exception | None) -> None:
        if error is not None:
            level = logging.WARNING if isinstance(error, RpcError) else logging.INFO  # clients come and go
            _log.log(level, "rpc_connection_lost", peer=self.peer, error=str(error), kind=type(error).__name__)
        self._stop_waiting()
        calls, self._calls = self._calls, {}
        for call in calls.values():
            self._give_up(call)
        self._server.session_lost(self)
        if self._lost is not None:
            self._lost()
