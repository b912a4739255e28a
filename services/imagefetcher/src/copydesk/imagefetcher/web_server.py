"""A small HTTP server, for the control socket, for peers and for scrapers: one request a connection.

On the daemon's own event loop on purpose: a daemon that has frozen does not answer, and whoever asks for its
health sees that. It reads a head and a short body, and neither keeps connections nor streams.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

import msgspec

from copydesk.common.telemetry import get_logger
from copydesk.imagefetcher.errors import ImageError

HEAD_BYTES = 16_384
BODY_BYTES = 65_536
HEAD_SECONDS = 10.0
ANSWER_SECONDS = 30.0
"""A sector of 4 MiB in so long is 1.1 Mbit/s; who reads more slowly keeps memory from others."""
CONNECTIONS = 256

_log = get_logger(__name__)


class ListenError(ImageError):
    """The server cannot listen: it carries the address and the reason."""

    def __init__(self, address: str, reason: str) -> None:
        self.address = address
        self.reason = reason
        super().__init__(f"{address}: {reason}")


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked: `headers` by their names in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Answer:
    """What is said."""

    body: bytes
    content_type: str = "application/json"
    status: HTTPStatus = HTTPStatus.OK
    encoding: str = ""


Handler = Callable[[Request], Awaitable[Answer]]


class RequestError(ImageError):
    """A request that cannot be served: it carries the status and what to say."""

    def __init__(self, status: HTTPStatus, detail: str = "") -> None:
        self.status = status
        self.detail = detail or status.phrase
        super().__init__(f"{status.value}: {self.detail}")


class WebServer:
    """Answers by `handler`, on a port or on a Unix socket."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()
        self.port = 0

    async def listen(self, host: str, port: int) -> None:
        """Listen on a port, 0 for a free one, which `port` then names; raises ListenError."""
        try:
            self._server = await asyncio.start_server(self._accept, host, port, limit=HEAD_BYTES)
        except OSError as error:
            raise ListenError(f"{host}:{port}", error.strerror or str(error)) from error
        self.port = self._server.sockets[0].getsockname()[1]

    async def listen_unix(self, path: Path) -> None:
        """Listen on a socket that only this user may connect to; raises ListenError."""
        listener = socket.socket(socket.AF_UNIX)
        try:
            path.unlink(missing_ok=True)  # noqa: ASYNC240  # in /run, which is memory
            listener.bind(str(path))
            path.chmod(0o600)  # noqa: ASYNC240  # before it listens, when nobody can connect yet
            self._server = await asyncio.start_unix_server(self._accept, sock=listener, limit=HEAD_BYTES)
        except OSError as error:
            listener.close()
            raise ListenError(str(path), error.strerror or str(error)) from error

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
            writer.close()
            return
        self._open.add(task)
        try:
            with contextlib.suppress(TimeoutError, ConnectionError, EOFError, asyncio.CancelledError):
                await self._serve(reader, writer)
        finally:
            self._open.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(HEAD_SECONDS):
                request = await _read(reader)
        except RequestError as error:
            answer = failure(error.status, error.detail)
        else:
            answer = await self._answer(request)
        writer.write(_head(answer))
        writer.write(answer.body)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await writer.drain()
        except TimeoutError:
            writer.transport.abort()  # closing would go on sending

    async def _answer(self, request: Request) -> Answer:
        try:
            return await self._handler(request)
        except RequestError as error:
            return failure(error.status, error.detail)
        except Exception as error:  # one request's fault is not the daemon's
            _log.exception("request_failed")
            return failure(HTTPStatus.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}")


def failure(status: HTTPStatus, detail: str, hint: str = "") -> Answer:
    """An answer that says what went wrong."""
    return Answer(msgspec.json.encode({"error": detail, "hint": hint}), status=status)


async def _read(reader: asyncio.StreamReader) -> Request:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError as error:
        raise RequestError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE) from error
    request = parse_head(head)
    length = request.headers.get("content-length", "0")
    if not length.isdecimal() or len(length) > 18 or "transfer-encoding" in request.headers:
        raise RequestError(HTTPStatus.LENGTH_REQUIRED)
    if int(length) > BODY_BYTES:
        raise RequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
    return Request(request.method, request.path, request.headers, await reader.readexactly(int(length)))


def parse_head(head: bytes) -> Request:
    """Take the head of a request apart; raises RequestError."""
    first, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    parts = first.split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        raise RequestError(HTTPStatus.BAD_REQUEST)
    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise RequestError(HTTPStatus.BAD_REQUEST)
        headers[name.strip().lower()] = value.strip()
    return Request(parts[0], parts[1].partition("?")[0], headers)


def _head(answer: Answer) -> bytes:
    lines = [
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}",
        f"Content-Type: {answer.content_type}",
        f"Content-Length: {len(answer.body)}",
        *([f"Content-Encoding: {answer.encoding}"] if answer.encoding else []),
        "Cache-Control: no-store",
        "Connection: close",
    ]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")
