"""uvicorn's HTTP protocol with bounds on what comes before and behind a body.

By itself it keeps as many headers as a client cares to send, for as long as the client likes: 40 MB of them become
600 MB of memory, and thousands of half requests stay open for ever. It also takes trailers for headers.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from copydesk.common.telemetry import get_logger
from copydesk.gateway import faults
from copydesk.gateway.faults import ApiError
from copydesk.gateway.http.responses import error_bytes

MAX_HEAD_BYTES = 64 * 1024
"""What a client may send without getting on with a request: a request line, headers, trailers. What browsers send
is below 16 KiB."""

HEAD_SECONDS = 10.0
"""How long the head of a request may take to come."""

_log = get_logger(__name__)


class BoundedProtocol(HttpToolsProtocol):
    """Answers a head that is too large with 431 and one that takes too long with 408, and drops trailers."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._idle_bytes = 0
        self._in_head = False
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection; one on which nothing ever comes is closed as an idle one is."""
        super().connection_made(transport)
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop_timer()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what came, unless too much came since a request last got on."""
        self._idle_bytes += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._idle_bytes > MAX_HEAD_BYTES:
            self._refuse(faults.head_too_large(MAX_HEAD_BYTES))
        elif self._in_head and self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self._head_late)

    def on_message_begin(self) -> None:
        """A head begins."""
        self._in_head = True
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header, but no trailer: what checks the headers has done so by then."""
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """A head is complete."""
        self._in_head = False
        self._idle_bytes = 0
        self._stop_timer()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A part of a body came; how large and how slow one may be is not judged here."""
        self._idle_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """A request is complete."""
        self._idle_bytes = 0
        super().on_message_complete()

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _head_late(self) -> None:
        self._head_timer = None
        if self.transport.is_closing() or not self._in_head:
            return
        if self._answering:  # the rest may have come, and wait until the answer before it is out
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self._head_late)
            return
        self._refuse(faults.head_timeout(HEAD_SECONDS))

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _refuse(self, error: ApiError) -> None:
        """Answer, unless an answer is underway on this connection already, and close."""
        _log.warning("http_head_refused", code=error.code)
        self._stop_timer()
        if not self._answering:
            self.transport.write(error_bytes(error))
        self.transport.close()
