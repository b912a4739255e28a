"""HTTP/1.1 from the client's side with as little work as will do.

A generator often shares its machine with what it measures, and one that needs a millisecond of processor time
for a request cannot keep the schedule of a thousand a second. A connection carries one request at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from copydesk.loadtest.sample import RequestFailedError

_END_OF_HEAD = b"\r\n\r\n"


class Answer(NamedTuple):
    """Status and body of an answer."""

    status: int
    body: bytes


class DisconnectedError(RequestFailedError):
    """The connection ended without a whole answer; `untouched` if not a byte of one had come."""

    def __init__(self, reason: str, *, untouched: bool) -> None:
        self.untouched = untouched
        super().__init__("disconnected", reason)


class Connection(asyncio.Protocol):
    """One connection; `usable` says whether it can carry another request.

    `on_unasked` is called when something comes that is no answer to a request, such as a second answer to one.
    """

    def __init__(self, on_unasked: Callable[[], None] = lambda: None) -> None:
        self.usable = True
        self._on_unasked = on_unasked
        self._transport: asyncio.Transport | None = None
        self._waiting: asyncio.Future[Answer] | None = None
        self._received = bytearray()
        self._head: _Head | None = None

    async def exchange(self, request: bytes) -> Answer:
        """Send a request and return its answer; raises `RequestFailedError`. Cancelled, the connection ends."""
        if self._transport is None or not self.usable:
            raise DisconnectedError("the server closed the connection", untouched=True)
        self._received.clear()
        self._head = None
        waiting: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting = waiting
        try:
            self._transport.write(request)
            return await waiting
        except BaseException:
            self.close()
            raise
        finally:
            self._waiting = None

    def close(self) -> None:
        """End the connection."""
        self.usable = False
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin; called by the event loop."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Take in bytes; called by the event loop."""
        if self._waiting is None or self._waiting.done():
            if self._waiting is None or not (self._waiting.cancelled() or self._waiting.exception()):
                self._on_unasked()
            self.close()  # nobody asked: whatever comes next on this connection cannot be told apart
            return
        self._received += data
        try:
            answer = self._answer(at_end=False)
        except (ValueError, IndexError) as error:
            self._fail(RequestFailedError("bad_answer", f"no HTTP: {error}"))
            self.close()
            return
        if answer is not None:
            if self._head is not None and self._head.exceeded_by(self._received):
                self.usable = False
                self._on_unasked()
            self._waiting.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        """End; called by the event loop."""
        self.usable = False
        if self._waiting is None or self._waiting.done():
            return
        answer = self._answer(at_end=True) if exc is None and self._head is not None else None
        if answer is not None:
            self._waiting.set_result(answer)
            return
        reason = str(exc) if exc else "the server closed the connection"
        self._fail(DisconnectedError(reason, untouched=not self._received))

    def _fail(self, error: RequestFailedError) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(error)

    def _answer(self, *, at_end: bool) -> Answer | None:
        if self._head is None:
            end = self._received.find(_END_OF_HEAD)
            if end < 0:
                return None
            self._head = _Head(bytes(self._received[:end]))
            del self._received[: end + len(_END_OF_HEAD)]
        head = self._head
        body = head.body(self._received, at_end=at_end)
        if body is None:
            return None
        self.usable = self.usable and head.keeps and not at_end
        return Answer(head.status, body)


class _Head:
    """What the head of an answer says of the body, and of the connection after it."""

    def __init__(self, head: bytes) -> None:
        first, *rest = head.split(b"\r\n")
        self.status = int(first.split(b" ", 2)[1])
        parted = (line.partition(b":") for line in rest)
        fields = {name.strip().lower(): value.strip() for name, _, value in parted}
        self._chunked = fields.get(b"transfer-encoding", b"").lower() == b"chunked"
        self._length = int(fields[b"content-length"]) if b"content-length" in fields else None
        if self.status in (204, 304):
            self._length = 0
        ends_with_connection = not self._chunked and self._length is None
        closes = fields.get(b"connection", b"").lower() == b"close" or first.startswith(b"HTTP/1.0")
        self.keeps = not (closes or ends_with_connection)

    def exceeded_by(self, received: bytearray) -> bool:
        """Say whether there is more behind a body whose length is known."""
        return not self._chunked and self._length is not None and len(received) > self._length

    def body(self, received: bytearray, *, at_end: bool) -> bytes | None:
        """Return the body if all of it is there."""
        if self._chunked:
            return _joined_chunks(received)
        if self._length is None:
            return bytes(received) if at_end else None
        return bytes(received[: self._length]) if len(received) >= self._length else None


def _joined_chunks(received: bytearray) -> bytes | None:
    body, at = bytearray(), 0
    while True:
        end = received.find(b"\r\n", at)
        if end < 0:
            return None
        size = int(received[at:end].split(b";")[0], 16)
        at = end + 2
        if size == 0:
            # Trailers, if any, end with an empty line.
            return bytes(body) if received[at:].startswith(b"\r\n") or _END_OF_HEAD in received[at:] else None
        if len(received) < at + size + 2:
            return None
        body += received[at : at + size]
        at += size + 2
