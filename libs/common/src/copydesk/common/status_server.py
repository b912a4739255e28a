"""Health, readiness and metrics over HTTP: a server for probes and scrapers, on the service's own event loop.

On the same loop on purpose: a service that has frozen does not answer, and whoever asks for its health sees
that. It knows `GET` and `HEAD` of fixed paths, one request a connection, and reads no more than a request's head.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus

from copydesk.common.errors import CopydeskError

HEAD_BYTES = 8_192
HEAD_SECONDS = 5.0
CONNECTIONS = 32
"""Probes and scrapers need a few. With more than these the one that has been open for longest is ended: who asks
for health says so at once, and must not find the place taken by somebody who says nothing."""


class StatusPortError(CopydeskError):
    """The server cannot listen: it carries host, port and reason."""

    def __init__(self, host: str, port: int, reason: str) -> None:
        self.host = host
        self.port = port
        self.reason = reason
        super().__init__(f"{host}:{port}: {reason}")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a path has to say."""

    body: bytes
    content_type: str = "application/json"
    status: HTTPStatus = HTTPStatus.OK


Paths = Mapping[str, Callable[[], Answer]]


class StatusServer:
    """Answers `paths` on `host` and `port`; port 0 takes a free one, which `port` then names."""

    def __init__(self, host: str, port: int, paths: Paths) -> None:
        self.host = host
        self.port = port
        self._paths = paths
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.Task[None], None] = {}

    async def start(self) -> None:
        """Listen; raise `StatusPortError` if that is impossible."""
        try:
            self._server = await asyncio.start_server(self._accept, self.host, self.port, limit=HEAD_BYTES)
        except OSError as error:
            raise StatusPortError(self.host, self.port, error.strerror or str(error)) from error
        except UnicodeError as error:
            raise StatusPortError(self.host, self.port, "no name of a host") from error
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Listen no more, and end what is being answered."""
        if self._server is None:
            return
        self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._open) >= CONNECTIONS:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.cancel()
        self._open[task] = None
        try:
            with contextlib.suppress(TimeoutError, ConnectionError, EOFError, asyncio.CancelledError):
                async with asyncio.timeout(HEAD_SECONDS):
                    await self._serve(reader, writer)
        finally:
            self._open.pop(task, None)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            writer.write(rendered(_plain(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)))
        else:
            writer.write(respond(head, self._paths))
        await writer.drain()


def respond(head: bytes, paths: Paths) -> bytes:
    """Return the whole answer to a request with this head."""
    parts = head.partition(b"\r\n")[0].decode("latin-1").split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        return rendered(_plain(HTTPStatus.BAD_REQUEST))
    method, target, _ = parts
    ask = paths.get(target.partition("?")[0])
    if ask is None:
        return rendered(_plain(HTTPStatus.NOT_FOUND, f"the paths are {', '.join(paths)}"))
    if method not in ("GET", "HEAD"):
        return rendered(_plain(HTTPStatus.METHOD_NOT_ALLOWED), ("Allow: GET, HEAD",))
    return rendered(ask(), body=method == "GET")


def rendered(answer: Answer, headers: tuple[str, ...] = (), *, body: bool = True) -> bytes:
    """Put an answer into bytes; without `body`, as a `HEAD` wants it."""
    lines = [
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}",
        f"Content-Type: {answer.content_type}",
        f"Content-Length: {len(answer.body)}",
        "Cache-Control: no-store",
        "Connection: close",
        *headers,
    ]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (answer.body if body else b"")


def _plain(status: HTTPStatus, detail: str = "") -> Answer:
    return Answer(f"{detail or status.phrase}\n".encode(), "text/plain; charset=utf-8", status)
