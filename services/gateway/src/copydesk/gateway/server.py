"""Serving HTTP: the socket, uvicorn, and an end that answers what was accepted."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterator
from functools import partial

import uvicorn
from starlette.types import ASGIApp

from copydesk.common.errors import CopydeskError
from copydesk.gateway.http.connection import HotProtocol
from copydesk.gateway.http.hot import HotPath

BACKLOG = 2048
KEEP_ALIVE_SECONDS = 75
"""Longer than the 60 s that load balancers keep idle connections, so that theirs close first."""


class ListenError(CopydeskError):
    """The address cannot be listened on: it carries host, port and the system's reason."""

    def __init__(self, host: str, port: int, reason: str) -> None:
        self.host = host
        self.port = port
        self.reason = reason
        super().__init__(f"cannot listen on {host}:{port}: {reason}")


def listen(host: str, port: int) -> socket.socket:
    """Bind and listen; port 0 takes a free one. Raises `ListenError`."""
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        raise ListenError(host, port, error.strerror or str(error)) from error
    except UnicodeError:  # of the resolver
        raise ListenError(host, port, "this can be no name of a machine") from None


class Server(uvicorn.Server):
    """uvicorn, told to stop by a call rather than by a signal of its own, and gentler about it.

    It stops listening, then for `grace` seconds answers what still comes on open connections, asking each client
    to close; then idle connections are closed, and what is underway is finished.
    """

    def __init__(self, app: ASGIApp, hot: HotPath, *, grace: float, timeout: float) -> None:
        config = uvicorn.Config(
            app,
            http=partial(HotProtocol, hot=hot),  # type: ignore[arg-type]
            ws="none",
            loop="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            backlog=BACKLOG,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=max(1, round(timeout)),
        )
        super().__init__(config)
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
        self._lifecycle = hot.lifecycle
        self._grace = grace

    def stop(self) -> None:
        """Have `serve` come to its end."""
        self._lifecycle.stop()
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, be graceful, then do as uvicorn does; what then is still underway is given up."""
        for server in self.servers:
            server.close()
        await asyncio.sleep(self._grace)
        await super().shutdown(sockets)
        for connection in tuple(self.server_state.connections):
            connection.transport.abort()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone: uvicorn would raise them again at the end, and the exit status would not be 0."""
        yield
