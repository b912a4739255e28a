"""uvicorn's HTTP protocol with bounds on what comes before and behind a body, and requests strictly in turn.

By itself it keeps as many headers as a client cares to send, for as long as the client likes: 40 MB of them become
600 MB of memory, and thousands of half requests stay open for ever. It takes trailers for headers. And what it has
to say about a request that is none, it says at once, in the place of the answers that are still to come.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from copydesk.common.telemetry import get_logger
from copydesk.gateway import faults
from copydesk.gateway.faults import ApiError
from copydesk.gateway.http.responses import error_bytes
from copydesk.gateway.http.upgrades import head_without_offer

MAX_HEAD_BYTES = 64 * 1024
"""What a client may send without getting on with a request: a request line, headers, trailers. What browsers send
is below 16 KiB."""

HEAD_SECONDS = 10.0
"""How long the head of a request may take to come."""

_log = get_logger(__name__)


class _Queued:
    """Stands in for the request before, so that uvicorn queues each one, and `_advance` alone starts them."""

    response_complete = False


class BoundedProtocol(HttpToolsProtocol):
    """Answers a head that is too large with 431, one that takes too long with 408, one that is none with 400.

    `cycle` is the request that came last, `pipeline` holds those that wait, the newest left, each with its
    application; `_active` is the one that is being answered.
    """

    cycle: Any
    pipeline: deque[Any]

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._active: Any = None
        self._advancing = False
        self._idle_bytes = 0
        self._in_head = False
        self._in_body = False
        self._refused: ApiError | None = None
        self._head_timer: asyncio.TimerHandle | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._stirred = False
        self._unread = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection."""
        super().connection_made(transport)
        self._watch_idleness()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection, and tell every request on it."""
        self._stop_timers()
        left = [cycle for cycle, _ in self.pipeline]
        if self._active is not None:
            left.append(self._active)
        self._active = self.cycle = None
        self.pipeline.clear()
        super().connection_lost(exc)
        for cycle in left:
            self._abandon(cycle)

    def data_received(self, data: bytes) -> None:
        """Parse what came, unless too much came since a request last got on."""
        if self._refused is not None:
            return
        self._stirred = True
        self._idle_bytes += len(data)
        try:
            self._parse(data)
        except httptools.HttpParserError as error:
            self._on_parser_error(error)
        if self._refused is not None or self.transport.is_closing():
            return
        if self._idle_bytes > MAX_HEAD_BYTES:
            self._refuse(faults.head_too_large(MAX_HEAD_BYTES))
        elif self._in_head and self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self._head_late)

    def on_message_begin(self) -> None:
        """A head begins."""
        self._in_head = True
        self.url = b""
        self.headers = []
        self.expect_100_continue = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header, but no trailer: what checks the headers has done so by then."""
        if self._in_head:
            name = name.lower()
            if name == b"expect" and value.lower() == b"100-continue":
                self.expect_100_continue = True
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """A head is complete, and its request is for the ASGI application."""
        if self._offers_upgrade():
            self.cycle = None
            return
        self._end_head()
        self._make_scope()
        self.cycle = _Queued
        super().on_headers_complete()
        self._in_body = True
        self._advance()

    def on_body(self, body: bytes) -> None:
        """A part of a body came; how large and how slow one may be is not judged here."""
        self._idle_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """A request is complete, unless it is to be parsed again."""
        if self._offers_upgrade():
            return
        self._idle_bytes = 0
        self._in_body = False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """An answer is complete."""
        self.server_state.total_requests += 1
        self._active = None
        self._stirred = True
        self._advance()

    def resume_writing(self) -> None:
        """The client reads on."""
        super().resume_writing()
        self._advance()

    def shutdown(self) -> None:
        """Close the connection once nothing is underway on it."""
        if self._active is None and not self.pipeline:
            self.transport.close()
        else:
            self.cycle.keep_alive = False

    def _advance(self) -> None:
        """Start the next request, if it is its turn; with none left, read on.

        A client that does not read its answers is given no more of them. An answer that is made at once ends in
        here again: that is why this is a loop and no recursion.
        """
        if self._advancing:
            return
        self._advancing = True
        try:
            while self.pipeline and self._active is None and self._may_start():
                cycle, app = self.pipeline.pop()
                self._active = cycle
                self._begin(cycle, app)
        finally:
            self._advancing = False
        if self.pipeline or self.transport.is_closing():
            return
        if self._refused is None:
            self.flow.resume_reading()
        elif self._active is None:
            self._part()

    def _may_start(self) -> bool:
        return not (self.flow.write_paused or self.transport.is_closing())

    def _begin(self, cycle: Any, app: Any) -> None:
        self._start_asgi_task(cycle, app)

    def _abandon(self, cycle: Any) -> None:
        cycle.disconnected = not cycle.response_complete
        cycle.message_event.set()

    def _parse(self, data: bytes) -> None:
        """Parse what came; a request that offers another protocol once more, without its offer (`upgrades`)."""
        while True:
            try:
                return self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                if not self._offers_upgrade():
                    return None
                method, version = self.parser.get_method(), self.parser.get_http_version()
                self.parser = httptools.HttpRequestParser(self)
                data = head_without_offer(method, self.url, version, self.headers) + data[upgrade.args[0] :]

    def _offers_upgrade(self) -> bool:
        return self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"

    def _make_scope(self) -> None:
        """Make what the hot path can do without."""
        url, headers, expect = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expect
        self.headers.extend(headers)

    def _end_head(self) -> None:
        self._in_head = False
        self._idle_bytes = 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_late(self) -> None:
        self._head_timer = None
        if self.transport.is_closing() or not self._in_head:
            return
        if self._active is not None:  # the rest may have come, and wait until the answer before it is out
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self._head_late)
            return
        self._refuse(faults.head_timeout(HEAD_SECONDS))

    def _watch_idleness(self) -> None:
        """Close the connection after a whole period, or up to two, in which nothing came and nothing was underway.

        A timer for each wait between two requests would cost more than all else that is done for it.
        """
        self._idle_timer = self.loop.call_later(self.timeout_keep_alive, self._on_idle_timer)

    def _on_idle_timer(self) -> None:
        """See whether to go on with this connection.

        A client that reads nothing of its answers for as long is taken for gone. To close in an orderly way would
        be to wait for it.
        """
        unread, before = self.transport.get_write_buffer_size(), self._unread
        self._unread = unread
        quiet = self._is_quiet()
        if quiet and unread and unread == before:
            _log.warning("client_does_not_read", unread=unread)
            self.transport.abort()
        elif quiet and not unread and self._active is None:
            self.timeout_keep_alive_handler()
        else:
            self._stirred = False
            self._watch_idleness()

    def _is_quiet(self) -> bool:
        """Whether nothing has come since the last look, and no answer was completed."""
        return not self._stirred

    def _stop_timers(self) -> None:
        for timer in (self._head_timer, self._idle_timer):
            if timer is not None:
                timer.cancel()
        self._head_timer = self._idle_timer = None

    def _on_parser_error(self, error: httptools.HttpParserError) -> None:
        cause = error.__context__
        if cause is not None and not isinstance(cause, httptools.HttpParserError):
            _log.error("http_callback_failed", exc_info=cause)
            self._refuse(faults.unexpected())
        else:
            self._refuse(faults.invalid_http())

    def _refuse(self, error: ApiError) -> None:
        """Take nothing more from this connection; answer what came before, then say why, then close it."""
        _log.warning("http_refused", code=error.code)
        self._refused = error
        broken = self.cycle if self._in_body else None
        if broken is not None and broken is not self._active and self.pipeline:
            self.pipeline.popleft()
        answers_first = bool(self.pipeline) if self._active is None else self._active is not broken
        if answers_first:
            self.flow.pause_reading()
        else:
            self._part()

    def _part(self) -> None:
        """Say why, unless an answer is half out, and close."""
        assert self._refused is not None
        if self._active is None or not self._active.response_started:
            self.transport.write(error_bytes(self._refused))
        self.transport.close()
