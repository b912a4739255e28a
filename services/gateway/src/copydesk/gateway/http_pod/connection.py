"""One HTTP/1.1 connection to a server, for one request at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, cast

import httptools

from copydesk.common.telemetry import get_logger

MAX_ANSWER_BYTES = 4 << 20
"""The most bytes of one answer; what a frame of an RPC pod may have."""

_log = get_logger(__name__)


class Listener(Protocol):
    """Who asked. `on_complete` or `on_lost` comes last, and only one of them."""

    def on_head(self, status: int, headers: dict[bytes, bytes]) -> None:
        """The answer begins; the names of headers are in lower case."""

    def on_body(self, data: bytes) -> None:
        """More of its body."""

    def on_complete(self) -> None:
        """The answer is complete."""

    def on_lost(self, *, begun: bool) -> None:
        """The connection ended before that; `begun` says whether the answer had."""


class HttpConnection(asyncio.Protocol):
    """A connection that is free for the next request once an answer is complete; then `on_free` is called.

    `asked` counts its requests; since when it is free, `free_since`, its pool notes.
    """

    def __init__(self, on_free: Callable[[HttpConnection], None]) -> None:
        self.asked = 0
        self.free_since = 0.0
        self._on_free = on_free
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._listener: Listener | None = None
        self._headers: dict[bytes, bytes] = {}
        self._begun = self._keeps = False
        self._bytes = 0
        self._answered: Listener | None = None

    @property
    def open(self) -> bool:
        """Whether a request may be sent."""
        return self._transport is not None and not self._transport.is_closing()

    def ask(self, request: bytes, listener: Listener) -> None:
        """Send a request; the connection must be free."""
        assert self._transport is not None
        self.asked += 1
        self._listener = listener
        self._headers, self._begun, self._bytes = {}, False, 0
        self._transport.write(request)

    def abort(self) -> None:
        """End the connection at once, and what the server is doing for it; the listener hears nothing of it."""
        self._listener = None
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection stands."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own is no subclass

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        del exc
        self._transport = None
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.on_lost(begun=self._begun)

    def data_received(self, data: bytes) -> None:
        """Parse what came."""
        self._bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            _log.warning("http_answer_unreadable", error=str(error.__context__ or error))
            self._give_up()
        if self._bytes > MAX_ANSWER_BYTES and self._listener is not None:
            _log.warning("http_answer_too_large", limit=MAX_ANSWER_BYTES)
            self._give_up()
        answered, self._answered = self._answered, None
        if answered is not None:
            self._pass_on(answered)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header."""
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        """The head is complete; that of an informational answer (1xx) is not the answer's.

        An answer that nobody asked for ends the connection: the next one on it might be another's too.
        """
        status = self._parser.get_status_code()
        if status < 200:
            self._headers = {}
        elif self._listener is None:
            self.abort()
        else:
            self._begun = True
            self._listener.on_head(status, self._headers)

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        if self._listener is not None:
            self._listener.on_body(body)

    def on_message_complete(self) -> None:
        """The answer is complete, unless it was an informational one.

        Only when all that has come is read the connection is free, and whoever asked is told: else the next
        request on it would get what may stand behind this answer.
        """
        if not self._begun:
            return
        self._answered, self._listener = self._listener, None
        self._begun = False
        self._keeps = self._parser.should_keep_alive()

    def _pass_on(self, answered: Listener) -> None:
        if self._keeps and self.open:
            self._on_free(self)
        elif self._transport is not None:
            self._transport.close()
        answered.on_complete()

    def _give_up(self) -> None:
        listener = self._listener
        self.abort()
        if listener is not None:
            listener.on_lost(begun=True)
