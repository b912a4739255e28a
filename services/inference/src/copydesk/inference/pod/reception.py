"""A worker's side of the door: takes connections in, and gives back those that the supervisor asks for."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Coroutine
from typing import Any

from copydesk.common.rpc import RpcServer
from copydesk.common.telemetry import get_logger
from copydesk.inference.pod.inbox import Connection, GiveBack, Receiver, Sender

_log = get_logger(__name__)

GIVE_BACK_SECONDS = 1.0
"""How long the requests of a connection may keep it from being given back; meanwhile new ones on it wait."""


class Reception:
    """Lives on the event loop. `on_taken` and `on_closed` count messages and connections, once each."""

    def __init__(
        self,
        server: RpcServer,
        inbox: Receiver,
        returns: Sender,
        *,
        on_taken: Callable[[], None],
        on_closed: Callable[[], None],
    ) -> None:
        self._server = server
        self._inbox = inbox
        self._returns = returns
        self._on_taken = on_taken
        self._on_closed = on_closed
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()

    def open(self) -> None:
        """Begin to take messages."""
        self._loop.add_reader(self._inbox.fileno(), self._take)

    def close(self) -> None:
        """Take no more."""
        self._loop.remove_reader(self._inbox.fileno())

    def _take(self) -> None:
        while (taken := self._inbox.take()) is not None:
            self._on_taken()
            message, sock = taken
            if isinstance(message, Connection) and sock is not None:
                self._start(self._adopt(sock, message.peer))
            elif isinstance(message, GiveBack):
                for _ in range(message.connections):
                    self._start(self._give_back())

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _adopt(self, sock: socket.socket, peer: str | None) -> None:
        try:
            await self._server.adopt(sock, peer=peer, on_lost=self._on_closed)
        except OSError as error:
            if isinstance(error, ssl.SSLError):  # a certificate that is missing or none of ours, or no TLS at all
                _log.warning("rpc_tls_refused", reason=error.reason or str(error))
            _log.debug("connection_lost_early", error=str(error))
            self._on_closed()

    async def _give_back(self) -> None:
        released = await self._server.release(GIVE_BACK_SECONDS)
        if released is None:
            return
        with released.sock as sock:
            if not self._returns.put(Connection(released.peer), sock):
                _log.warning("connection_not_given_back", peer=released.peer)
