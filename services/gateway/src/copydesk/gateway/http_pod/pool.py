"""Connections to one server: as many as there are requests, kept for the next ones."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod

from copydesk.common.rpc import TcpAddress
from copydesk.common.tls import ClientTls
from copydesk.gateway.http_pod.connection import HttpConnection

FREE_SECONDS = 3.0
"""How long a free connection is used again: servers close theirs after 5 s (uvicorn) or later."""


class Pool:
    """Sends requests. `timeout` is that of a new connection, in seconds; with `tls` all are under it."""

    def __init__(self, address: TcpAddress, timeout: float, tls: ClientTls | None = None) -> None:
        self.address = address
        self.closed = False
        self._timeout = timeout
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._free: list[HttpConnection] = []
        self._connecting: set[asyncio.Task[None]] = set()

    def send(self, asker: Asker) -> None:
        """Send a request over a free connection, else over a new one."""
        connection = self._take()
        if connection is not None:
            asker.ask(connection)
        else:
            self.send_afresh(asker)

    def send_afresh(self, asker: Asker) -> None:
        """Send a request over a new connection."""
        task = self._loop.create_task(self._connect(asker))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    def drop(self) -> None:
        """Close the free connections, and each that gets free or is made from now on."""
        self.closed = True
        for connection in self._free:
            connection.abort()
        self._free.clear()

    async def close(self) -> None:
        """Drop everything, and wait until no connection is being made."""
        self.drop()
        tasks = tuple(self._connecting)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _take(self) -> HttpConnection | None:
        """The connection that was used last, of those that are free and that the server is not about to close."""
        while self._free:
            connection = self._free.pop()
            if connection.open and self._loop.time() - connection.free_since < FREE_SECONDS:
                return connection
            connection.abort()
        return None

    async def _connect(self, asker: Asker) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                _, connection = await self._loop.create_connection(
                    lambda: HttpConnection(self._on_free),
                    self.address.host,
                    self.address.port,
                    ssl=self._tls.context() if self._tls else None,
                    server_hostname=(self._tls.name or None) if self._tls else None,
                )
        except TimeoutError:
            asker.unreachable(ConnectionError(f"no connection within {self._timeout:g} s"))
        except OSError as error:
            asker.unreachable(error)
        except (ValueError, OverflowError) as error:  # no address at all, says the resolver
            asker.unreachable(ConnectionError(str(error)))
        else:
            self._on_made(connection, asker)

    def _on_made(self, connection: HttpConnection, asker: Asker) -> None:
        if self.closed:
            connection.abort()
            asker.unreachable(ConnectionAbortedError("the channel was closed"))
        elif asker.over:
            self._on_free(connection)
        else:
            asker.ask(connection)

    def _on_free(self, connection: HttpConnection) -> None:
        if self.closed:
            connection.abort()
            return
        connection.free_since = self._loop.time()
        self._free.append(connection)


class Asker(ABC):
    """A request that waits for a connection, and then for the answer. `over` says that it does so no more."""

    def __init__(self, pool: Pool, request: bytes) -> None:
        self.over = False
        self._pool = pool
        self._request = request
        self._connection: HttpConnection | None = None

    def send(self) -> None:
        """Have it sent."""
        self._pool.send(self)

    def ask(self, connection: HttpConnection) -> None:
        """Send it over `connection`."""
        self._connection = connection
        connection.ask(self._request, self)

    def stop(self) -> None:
        """Give it up: the server sees its connection close."""
        self.over = True
        if self._connection is not None:
            self._connection.abort()
            self._connection = None

    def on_complete(self) -> None:
        """The answer is complete."""
        self.over = True
        self._connection = None
        self.answered()

    def on_lost(self, *, begun: bool) -> None:
        """The connection ended; one that was used before is closed by servers at any time, which is no failure."""
        connection, self._connection = self._connection, None
        if not begun and connection is not None and connection.asked > 1:
            self._pool.send_afresh(self)
            return
        self.over = True
        self.broken_off()

    @abstractmethod
    def on_head(self, status: int, headers: dict[bytes, bytes]) -> None:
        """The answer begins."""

    @abstractmethod
    def on_body(self, data: bytes) -> None:
        """More of its body."""

    @abstractmethod
    def answered(self) -> None:
        """It is complete."""

    @abstractmethod
    def broken_off(self) -> None:
        """It will not be complete."""

    @abstractmethod
    def unreachable(self, error: OSError) -> None:
        """There is no connection to be had."""
