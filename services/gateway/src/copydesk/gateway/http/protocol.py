"""uvicorn's HTTP protocol with bounds on what comes before and behind a body, and requests strictly in turn.

By itself it keeps as many headers as a client cares to send, for as long as the client likes: 40 MB of them become
600 MB of memory, and thousands of half requests stay open for ever. It takes trailers for headers. What it has to
say about a request that is none, it says at once, in the place of the answers that are still to come. And of many
requests that come at once it parses all before the first is answered, and reads more while that is underway.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import httptools
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from copydesk.common.telemetry import get_logger
from copydesk.gateway import faults
from copydesk.gateway.faults import ApiError
from copydesk.gateway.http.responses import error_bytes
from copydesk.gateway.http.upgrades import head_without_offer

MAX_HEAD_BYTES = 64 * 1024
"""What a client may send without getting on with a request: a request line, headers, trailers. What browsers send
is below 16 KiB."""

SLICE_BYTES = 2 * 1024
"""How much is parsed at once. A parsed request takes up to a hundred times the memory of its bytes, so that those
behind one that waits stay bytes."""

HEAD_SECONDS = 10.0
"""How long the head of a request may take to come."""

_NOTHING = memoryview(b"")

_log = get_logger(__name__)


class _Queued:
    """Stands in for the request before, so that uvicorn queues each one, and `_advance` alone starts them."""

    response_complete = False


class _Flow(FlowControl):
    """Reads nothing more while there is a `rest`: what was read and is not parsed while requests wait.

    Without it, an application that waits for its client to leave has uvicorn read on, whatever waits behind it.
    """

    rest = _NOTHING

    def resume_reading(self) -> None:
        if not self.rest:
            super().resume_reading()


class BoundedProtocol(HttpToolsProtocol):
    """Answers a head that is too large with 431, one that takes too long with 408, one that is none with 400.

    `cycle` is the request that came last, `pipeline` holds those that wait, the newest left, each with its
    application; `_active` is the one that is being answered. There is a rest in `flow` only while
    requests wait, or while it is being parsed.
    """

    flow: _Flow
    cycle: Any
    pipeline: deque[Any]

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._active: Any = None
        self._advancing = False
        self._reading = False
        self._leaving = False
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
        self.flow = _Flow(transport)
        self._watch_idleness()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection, and tell every request on it."""
        self._stop_timers()
        left = [cycle for cycle, _ in self.pipeline]
        if self._active is not None:
            left.append(self._active)
        self._active = self.cycle = None
        self.pipeline.clear()
        self.flow.rest = _NOTHING
        super().connection_lost(exc)
        for cycle in left:
            self._abandon(cycle)

    def data_received(self, data: bytes) -> None:
        """Parse what came, or keep it while requests wait."""
        if self._refused is not None:
            return
        self._stirred = True
        if self.pipeline or len(data) > SLICE_BYTES:
            self.flow.rest = memoryview(self.flow.rest.tobytes() + data)
            self._read_on()
        else:
            self._feed(data)
            if self._in_head:
                self._time_head()

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
        try:
            super().on_headers_complete()
        except httptools.HttpParserInvalidURLError:
            self._refuse(faults.invalid_http())
            raise  # or else the parser goes on
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

    @property
    def has_more(self) -> bool:
        """Whether more has come than what is being answered."""
        return bool(self.pipeline or self.flow.rest)

    def shutdown(self) -> None:
        """Close the connection once nothing is underway on it."""
        self._leaving = True
        self._leave()

    def flush(self) -> None:
        """Write what is held back to be written together: here nothing is."""

    def _advance(self) -> None:
        """Start the next request, if it is its turn; with none left, parse and read on.

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
            self._read_on()
        elif self._active is None:
            self._part()

    def _leave(self) -> None:
        if self._active is None and not self.pipeline:
            self.transport.close()
        elif self._refused is None and not self.flow.rest:
            self.cycle.keep_alive = False

    def _may_start(self) -> bool:
        return not (self.flow.write_paused or self.transport.is_closing())

    def _begin(self, cycle: Any, app: Any) -> None:
        self._start_asgi_task(cycle, app)

    def _abandon(self, cycle: Any) -> None:
        cycle.disconnected = not cycle.response_complete
        cycle.message_event.set()

    def _read_on(self) -> None:
        """Parse what came, a slice after the other, until a request has to wait.

        An answer that is made at once ends in here again, from within the parser.
        """
        if self._reading:
            return
        self._reading = True
        flow = self.flow
        try:
            while flow.rest and not self.pipeline and not self.transport.is_closing():
                data, flow.rest = flow.rest[:SLICE_BYTES], flow.rest[SLICE_BYTES:]
                flow.resume_reading()
                self._feed(data)
                if flow.rest:
                    self.flush()
        finally:
            self._reading = False
        if self.transport.is_closing():
            flow.rest = _NOTHING
        elif flow.rest:
            flow.pause_reading()
        if self._in_head:
            self._time_head()
        if self._leaving:
            self._leave()

    def _feed(self, data: bytes | memoryview) -> None:
        """Parse this, unless too much came since a request last got on."""
        self._idle_bytes += len(data)
        try:
            self._parse(data)
        except httptools.HttpParserError as error:
            if self._refused is None:
                self._on_parser_error(error)
        if self._idle_bytes > MAX_HEAD_BYTES and self._refused is None and not self.transport.is_closing():
            self._refuse(faults.head_too_large(MAX_HEAD_BYTES))

    def _parse(self, data: bytes | memoryview) -> None:
        """Parse this; a request that offers another protocol once more, without its offer (`upgrades`)."""
        while True:
            try:
                return self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                if not self._offers_upgrade():
                    self.flow.rest = _NOTHING
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

    def _time_head(self) -> None:
        """Give the client its time for the rest of a head; while requests wait, it is not read, so not late."""
        over = self._refused is not None or self.transport.is_closing()
        if self._head_timer is None and not self.pipeline and not over:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self._head_late)

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
        if isinstance(error, httptools.HttpParserCallbackError):
            _log.error("http_callback_failed", exc_info=error)
            self._refuse(faults.unexpected())
        else:
            self._refuse(faults.invalid_http())

    def _refuse(self, error: ApiError) -> None:
        """Take nothing more from this connection; answer what came before, then say why, then close it."""
        _log.warning("http_refused", code=error.code)
        self._refused = error
        self.flow.rest = _NOTHING
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
