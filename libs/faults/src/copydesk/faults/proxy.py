"""A TCP proxy whose link can be made worse at any time, and well again.

It stands between two processes that know nothing of it: who connects to it is connected to its target, byte for
byte. It speaks no protocol, so it can stand before anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from dataclasses import dataclass
from functools import partial
from types import TracebackType

from copydesk.faults.pipe import Sky, carry
from copydesk.faults.weather import CLEAR, Condition, Way, Weather

_LINGER_NONE = struct.pack("ii", 1, 0)
"""SO_LINGER for no time: closing then sends RST instead of FIN."""


@dataclass(slots=True, eq=False)
class _Connection:
    """Both halves of a connection, and the sky above each way; there is no `far` until the target is reached."""

    near: asyncio.StreamWriter
    skies: dict[Way, Sky]
    task: asyncio.Task[None] | None = None
    far: asyncio.StreamWriter | None = None

    def tell(self) -> None:
        for sky in self.skies.values():
            sky.tell()

    @property
    def forgotten(self) -> bool:
        return any(sky.forgotten for sky in self.skies.values())

    def forget(self) -> None:
        for sky in self.skies.values():
            sky.forgotten = True
        self.tell()

    def reset(self) -> None:
        for writer in (self.near, self.far):
            if writer is not None:
                _reset(writer)


class FaultProxy:
    """Listens on `host` and carries each connection to `target`; all methods are for the event loop's thread.

    `target` may be changed; it counts for connections that are opened from then on.
    """

    def __init__(self, target: tuple[str, int], *, host: str = "127.0.0.1", port: int = 0) -> None:
        self.target = target
        self.host = host
        self.port = port
        self._weather = CLEAR
        self._connections: set[_Connection] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> FaultProxy:
        """Listen, on a free port if none was named; `port` says on which."""
        self._server = await asyncio.start_server(self._accept, self.host, self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Listen no more, and end every connection."""
        if self._server is not None:
            self._server.close()
        tasks = [connection.task for connection in self._connections if connection.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def weather(self) -> Weather:
        """How the link is now."""
        return self._weather

    @weather.setter
    def weather(self, weather: Weather) -> None:
        self._weather = weather
        for connection in self._connections:
            connection.tell()

    @property
    def connections(self) -> int:
        """How many connections there are now."""
        return len(self._connections)

    def reset(self) -> int:
        """Break every connection off with RST, as a firewall that restarts does; return how many there were."""
        for connection in tuple(self._connections):
            connection.reset()
        return len(self._connections)

    def forget(self) -> int:
        """Leave every connection half-open; return how many there were.

        Both sides believe in it, and what either says is lost for good: so it is when the far machine has lost
        power, or something between them has forgotten the connection. New connections are not concerned.
        """
        for connection in self._connections:
            connection.forget()
        return len(self._connections)

    def bury(self) -> int:
        """Answer what was forgotten with RST, as a machine does that is back; return how many there were."""
        forgotten = [connection for connection in self._connections if connection.forgotten]
        for connection in forgotten:
            connection.reset()
        return len(forgotten)

    def _condition(self, way: Way) -> Condition:
        return self._weather.of(way)

    def _accept(self, reader: asyncio.StreamReader, near: asyncio.StreamWriter) -> None:
        connection = _Connection(near, {way: Sky(partial(self._condition, way)) for way in Way})
        self._connections.add(connection)
        connection.task = asyncio.create_task(self._serve(reader, connection))

    async def _serve(self, reader: asyncio.StreamReader, connection: _Connection) -> None:
        try:
            await self._join(reader, connection)
        except* OSError:
            connection.reset()
        finally:
            self._connections.discard(connection)
            for writer in (connection.near, connection.far):
                if writer is not None:
                    writer.close()

    async def _join(self, reader: asyncio.StreamReader, connection: _Connection) -> None:
        back, connection.far = await asyncio.open_connection(*self.target)
        for writer in (connection.near, connection.far):
            writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        async with asyncio.TaskGroup() as group:
            group.create_task(carry(reader, connection.far, connection.skies[Way.FORTH]))
            group.create_task(carry(back, connection.near, connection.skies[Way.BACK]))


def _reset(writer: asyncio.StreamWriter) -> None:
    found = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):
        found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NONE)
    writer.transport.abort()
