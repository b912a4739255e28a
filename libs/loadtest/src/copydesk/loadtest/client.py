"""Requests to one server over as many connections as are in flight."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import ssl
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

import msgspec

from copydesk.loadtest.connection import Answer, Connection, DisconnectedError
from copydesk.loadtest.sample import RequestFailedError

OK = 200


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """What is sent where: bodies, in turn and from the start again, by POST to `path` of the server at `url`.

    `headers` come on top of those that HTTP needs. They may hold a key, so a target is not to be logged. With
    `request_ids`, each request has an `X-Request-Id` that begins so, and its answer must name it as `id`.
    `answers`, one for each body, are what `corrected` of the answers must be.
    """

    url: str
    bodies: tuple[bytes, ...]
    path: str = "/v1/correct"
    headers: dict[str, str] = {}
    request_ids: str = ""
    answers: tuple[str, ...] = ()


class _Said(msgspec.Struct, frozen=True):
    id: str = ""
    corrected: str = ""


_decode_said = msgspec.json.Decoder(_Said).decode


def correction_bodies(texts: Sequence[str], model: str = "") -> tuple[bytes, ...]:
    """Return the bodies that ask for corrections of `texts`, of `model` if one is named."""
    rest = {"model": model} if model else {}
    return tuple(msgspec.json.encode({"text": text, **rest}) for text in texts)


class Client:
    """Sends the requests of a `Target`. Connections that are idle are used again, the latest first.

    `unasked` counts what came on a connection and was no answer to a request.
    """

    def __init__(self, target: Target) -> None:
        self.unasked = 0
        self._ids, self._answers = target.request_ids, target.answers
        parts = urlsplit(target.url)
        self._host, self._secure = parts.hostname or "", parts.scheme == "https"
        self._port = parts.port or (443 if self._secure else 80)
        self._tls = ssl.create_default_context() if self._secure else None
        self._requests = [
            _request(parts.netloc.rpartition("@")[2], parts.path.rstrip("/") + target.path, target.headers, body)
            for body in target.bodies
        ]
        self._idle: list[Connection] = []

    async def send(self, index: int) -> None:
        """Send request `index`; raise `RequestFailedError` unless it is answered with 200 and a JSON object."""
        answer = await self.ask(index)
        if answer.status != OK:
            raise RequestFailedError(f"http_{answer.status}", answer.body.decode("utf-8", "replace"))
        if not (answer.body.startswith(b"{") and answer.body.rstrip().endswith(b"}")):
            raise RequestFailedError("not_json", answer.body[:200].decode("utf-8", "replace"))
        if self._ids or self._answers:
            self._check(index, answer.body)

    def _check(self, index: int, body: bytes) -> None:
        try:
            said = _decode_said(body)
        except msgspec.DecodeError as error:
            raise RequestFailedError("not_json", str(error)) from error
        if self._ids and said.id != f"{self._ids}{index}":
            raise RequestFailedError("other_id", f"the answer to {self._ids}{index} is that to {said.id}")
        if self._answers and said.corrected != (right := self._answers[index % len(self._answers)]):
            raise RequestFailedError("other_answer", f"{said.corrected!r}, expected {right!r}")

    async def ask(self, index: int) -> Answer:
        """Send request `index` and return the answer, whatever its status; raises `RequestFailedError`."""
        request = self._request(index)
        while self._idle:
            connection = self._idle.pop()
            if not connection.usable:
                continue
            try:
                return await self._exchange(connection, request)
            except DisconnectedError as error:
                # The server may have closed it for want of use before it saw the request (RFC 9112, 9.3.1). Any
                # other one may have been closed just so: the next attempt is on a connection of its own.
                if not error.untouched:
                    raise
                break
        return await self._exchange(await self._connect(), request)

    def _request(self, index: int) -> bytes:
        request = self._requests[index % len(self._requests)]
        if not self._ids:
            return request
        head, _, body = request.partition(b"\r\n\r\n")
        return b"%s\r\nX-Request-Id: %s%d\r\n\r\n%s" % (head, self._ids.encode("latin-1"), index, body)

    def _count_unasked(self) -> None:
        self.unasked += 1

    async def _exchange(self, connection: Connection, request: bytes) -> Answer:
        answer = await connection.exchange(request)
        if connection.usable:
            self._idle.append(connection)
        else:
            connection.close()
        return answer

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        try:
            _, connection = await loop.create_connection(
                lambda: Connection(self._count_unasked), self._host, self._port, ssl=self._tls
            )
        except OSError as error:
            raise RequestFailedError("connect", error.strerror or str(error)) from error
        return connection

    def close(self) -> None:
        """End the idle connections."""
        while self._idle:
            self._idle.pop().close()


def allow_many_connections() -> None:
    """Raise this process's limit of open files as far as it may be: an open loop may need any number."""
    with contextlib.suppress(OSError, ValueError):
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _request(host: str, path: str, headers: Mapping[str, str], body: bytes) -> bytes:
    lines = [f"POST {path} HTTP/1.1", f"Host: {host}", "Content-Type: application/json"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body
