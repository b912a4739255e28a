"""HTTP/1.1 with as little work as will do: the client shares its cores with the engine that it measures.

Connections are kept and used again; one that the server has closed meanwhile is replaced.
"""

from __future__ import annotations

import asyncio
import contextlib

from copydesk.common.errors import CopydeskError

_Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class HttpError(CopydeskError):
    """An answer that is no 200, or none at all: `status` is 0 where the connection was lost."""

    def __init__(self, status: int, body: str) -> None:
        self.status = status
        self.body = body
        super().__init__(f"HTTP {status}: {body[:500]}" if status else body)


class _ClosedUnusedError(HttpError):
    """The connection was closed before a byte of an answer came."""


class HttpClient:
    """Requests to one server, each on a connection of its own for as long as it lasts."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._idle: list[_Connection] = []

    async def get(self, path: str) -> bytes:
        """Return the body of a good answer; raises `HttpError` or OSError."""
        return await self._exchange(f"GET {path} HTTP/1.1\r\nHost: {self._host}\r\n\r\n".encode())

    async def post(self, path: str, body: bytes) -> bytes:
        """Send JSON, and return the body of a good answer; raises `HttpError` or OSError."""
        head = f"POST {path} HTTP/1.1\r\nHost: {self._host}\r\nContent-Type: application/json\r\n"
        return await self._exchange(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)

    async def _exchange(self, request: bytes) -> bytes:
        reader, writer, is_new = await self._connection()
        try:
            writer.write(request)
            await writer.drain()
            status, body, keep = await _read_answer(reader)
        except BaseException as error:
            writer.close()
            if is_new or not isinstance(error, _ClosedUnusedError | ConnectionError):
                raise
            # The server had closed it for want of use, before it saw the request.
            return await self._exchange(request)
        if keep:
            self._idle.append((reader, writer))
        else:
            writer.close()
        if status != 200:
            raise HttpError(status, body.decode("utf-8", "replace"))
        return body

    async def _connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, bool]:
        while self._idle:
            reader, writer = self._idle.pop()
            if not reader.at_eof() and not writer.is_closing():
                return reader, writer, False
            writer.close()
        return *await asyncio.open_connection(self._host, self._port), True

    async def close(self) -> None:
        """Close the idle connections."""
        while self._idle:
            _, writer = self._idle.pop()
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


async def get(host: str, port: int, path: str) -> bytes:
    """Ask once, on a connection that is closed afterwards."""
    client = HttpClient(host, port)
    try:
        return await client.get(path)
    finally:
        await client.close()


async def _read_answer(reader: asyncio.StreamReader) -> tuple[int, bytes, bool]:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        status = int(head[0].split()[1])
        headers = {
            name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])
        }
        keep = headers.get("connection", "").lower() != "close"
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return status, await _read_chunks(reader), keep
        if "content-length" in headers:
            return status, await reader.readexactly(int(headers["content-length"])), keep
        return status, await reader.read(), False
    except asyncio.IncompleteReadError as error:
        kind = HttpError if error.partial else _ClosedUnusedError
        raise kind(0, "the server closed the connection") from error


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        body += await reader.readexactly(size)
        await reader.readexactly(2)
    await reader.readuntil(b"\r\n")
    return bytes(body)
