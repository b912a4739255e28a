"""A connection on which hot requests and others take turns, and a hot request on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from http import HTTPStatus
from time import perf_counter
from typing import Any

from copydesk.common.telemetry import get_logger
from copydesk.gateway import faults
from copydesk.gateway.faults import CLIENT_GONE, ApiError
from copydesk.gateway.http.exchange import Handler, Headers
from copydesk.gateway.http.heads import CHUNKED, LAST_CHUNK, chunk, length, plain_response, response_head
from copydesk.gateway.http.hot import JSON, HotPath
from copydesk.gateway.http.known import KnownHead
from copydesk.gateway.http.protocol import BoundedProtocol
from copydesk.gateway.http.request_ids import request_id
from copydesk.gateway.http.responses import error_content, error_headers
from copydesk.gateway.lane.seams import Seat

MAX_UNREAD_BYTES = 4 << 20
"""How much of an answer that comes in parts may wait for a client that does not read, before it is taken for gone.

Its parts come as fast as they are made, since nobody can tell a pod to be slower. A whole answer is bounded by its
request."""

# Plain numbers: with a request's every use of them, an enumeration's members are looked up and compared.
HTTP_OK = 200
HTTP_SERVER_ERROR = 500
HTTP_UNAVAILABLE = 503

_log = get_logger(__name__)


class HotProtocol(BoundedProtocol):
    """Takes hot requests from the parser to their handlers, in turn with those for the ASGI application.

    Plain ones do not come that far where there is an express lane: they leave by `_seat`, and are answered without
    any of this, one at a time like all.
    """

    def __init__(self, *arguments: Any, hot: HotPath, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.hot = hot
        self._out: list[bytes] = []
        self._closing = False
        self._seat: Seat | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection."""
        super().connection_made(transport)
        if self.hot.lane is not None:
            self._seat = self.hot.lane.seat(self, transport)

    def data_received(self, data: bytes) -> None:
        """Take what came: a whole request whose head has come before at once, the rest through the parser."""
        if self._in_head or self._in_body or self._refused is not None:
            super().data_received(data)
            return
        if self._seat is not None:
            if not self._is_free():
                self._seat.recall()
            elif self._seat.take(data):
                return
        self.resume(data)

    def resume(self, data: bytes) -> None:
        """Take what came and is not for the express lane, or not any more."""
        end = data.find(b"\r\n\r\n") + 4
        head = data[:end]
        known = self.hot.known.get(head)
        if known is None or len(data) != end + known.length or self.flow.rest:
            before = self.cycle
            super().data_received(data)
            if self.cycle is not before:  # or else nothing was made of this head
                self._learn(head, len(data))
            return
        self._stirred = True
        self.cycle = exchange = HotExchange(self, known.path, known.handler, known.headers, known=known)
        exchange.body = data[end:]
        exchange.complete = True
        self._accept(exchange)

    def on_headers_complete(self) -> None:
        """A head is complete: see which way its request goes."""
        route = self.hot.routes.get(self.url)
        if route is None or self.parser.get_method() != b"POST" or self.parser.get_http_version() != "1.1":
            super().on_headers_complete()
            return
        headers = dict(self.headers)
        if not self.hot.fits(headers):
            super().on_headers_complete()
            return
        self._end_head()
        self._in_body = True
        self.cycle = exchange = HotExchange(self, *route, headers, keep_alive=self.parser.should_keep_alive())
        self._accept(exchange)

    def on_body(self, body: bytes) -> None:
        """A part of a body came."""
        if type(self.cycle) is HotExchange:
            self._idle_bytes = 0
            self.cycle.take(body)
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """A request is complete."""
        if type(self.cycle) is HotExchange:
            self._idle_bytes = 0
            self._in_body = False
            self.cycle.taken(in_turn=self.cycle is self._active)
        else:
            super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection, and what was still to be written to it."""
        if self._seat is not None:
            self._seat.close()
            self._seat = None
        self._out.clear()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Close the connection once nothing is underway on it."""
        if self._seat is not None:
            self._seat.recall()
        super().shutdown()

    def send(self, data: bytes) -> None:
        """Write at the end of this turn of the loop, together with what else there is by then."""
        if not self._out:
            self.hot.flush_soon(self)
        self._out.append(data)

    def flush(self) -> None:
        """Write what there is."""
        if self.transport.is_closing():
            return
        out = self._out
        if out:
            data = out[0] if len(out) == 1 else b"".join(out)
            out.clear()
            self.transport.write(data)
            if self.flow.write_paused:
                self._check_reader()
        if self._closing:
            self.transport.close()

    def answered(self, exchange: HotExchange) -> None:
        """The answer to the active exchange is complete."""
        self._closing = self._closing or not exchange.keep_alive
        self.server_state.total_requests += 1
        self._active = None
        self._stirred = True
        if self.pipeline or self.flow.read_paused or self._refused is not None:
            self._advance()

    def _accept(self, exchange: HotExchange) -> None:
        if self._active is None and not self.pipeline and self._may_start():
            self._active = exchange
            exchange.start()
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((exchange, None))

    def _learn(self, head: bytes, size: int) -> None:
        """Remember what the parser made of `head`, if it was that of a hot request, and all that came with it."""
        exchange = self.cycle
        if type(exchange) is not HotExchange or not exchange.complete or not exchange.keep_alive:
            return
        length = int(exchange.headers[b"content-length"])
        if size == len(head) + length:
            known = KnownHead(exchange.path, exchange.handler, exchange.headers, length)
            self.hot.known.learn(head, known)
            lane = self.hot.lane
            if lane is not None and exchange.let_in and not self.hot.origins.headers(exchange.headers):
                lane.learn(head, exchange)

    def _may_start(self) -> bool:
        return not self._closing and super()._may_start()

    def _begin(self, cycle: Any, app: Any) -> None:
        if type(cycle) is HotExchange:
            cycle.start()
        else:
            self.flush()
            super()._begin(cycle, app)

    def _abandon(self, cycle: Any) -> None:
        if type(cycle) is HotExchange:
            cycle.leave()
        else:
            super()._abandon(cycle)

    def _is_free(self) -> bool:
        return self._active is None and not (self.pipeline or self._closing or self.flow.write_paused)

    def _is_quiet(self) -> bool:
        seat = self._seat
        if seat is not None and (seat.busy or seat.stirred):
            seat.stirred = False
            return False
        return super()._is_quiet()

    def _leave(self) -> None:
        self.flush()
        super()._leave()

    def _part(self) -> None:
        self.flush()
        super()._part()

    def _check_reader(self) -> None:
        streaming = type(self._active) is HotExchange and self._active.response_started
        if streaming and self.transport.get_write_buffer_size() > MAX_UNREAD_BYTES:
            _log.warning("client_does_not_read", request_id=self._active.request_id)
            self.transport.abort()


class HotExchange:
    """An `Exchange` on a `HotProtocol`, which reads its public attributes as it does those of uvicorn's cycles."""

    __slots__ = (
        "_connection",
        "_error",
        "_known",
        "_parts",
        "_started",
        "arrived",
        "body",
        "client",
        "complete",
        "gone",
        "handler",
        "headers",
        "keep_alive",
        "let_in",
        "on_gone",
        "path",
        "request_id",
        "response_complete",
        "response_started",
    )

    def __init__(
        self,
        connection: HotProtocol,
        path: str,
        handler: Handler,
        headers: Mapping[bytes, bytes],
        *,
        keep_alive: bool = True,
        known: KnownHead | None = None,
    ) -> None:
        self.path = path
        self.handler = handler
        self.headers = headers
        resumed = connection.hot.resuming.now
        self.request_id = resumed.request_id if resumed else request_id(headers.get(b"x-request-id"))
        self.arrived = resumed.sent_at if resumed else connection.hot.loop.time()
        self.body = b""
        self.client = ""
        self.on_gone: Callable[[], None] | None = None
        self.keep_alive = keep_alive
        self.complete = self.gone = self.let_in = self.response_started = self.response_complete = False
        self._connection = connection
        self._error: ApiError | None = None
        self._known = known
        self._parts: list[bytes] = []
        self._started: float | None = None

    def start(self) -> None:
        """Its turn has come: have it handled, once it is complete."""
        hot = self._connection.hot
        hot.metrics.in_flight += 1
        self._started = hot.resuming.now.sent_at if hot.resuming.now else perf_counter()
        if self.complete:
            self._handle()
        else:
            hot.bodies.add(self)

    def take(self, part: bytes) -> None:
        """Take a part of the body."""
        self._parts.append(part)

    def taken(self, *, in_turn: bool) -> None:
        """The body is complete."""
        parts = self._parts
        self.body = parts[0] if len(parts) == 1 else b"".join(parts)
        self.complete = True
        parts.clear()
        if in_turn and not self.response_complete:
            self._connection.hot.bodies.discard(self)
            self._handle()

    def body_late(self, seconds: float) -> None:
        """Give up waiting for the body."""
        self.fail(faults.body_timeout(seconds))

    def leave(self) -> None:
        """The client has gone."""
        if self.response_complete:
            return
        self.gone = self.response_complete = True
        if self._started is None:  # it never was its turn
            return
        hot = self._connection.hot
        hot.bodies.discard(self)
        hot.count(self.path, CLIENT_GONE, self._started)
        on_gone, self.on_gone = self.on_gone, None
        if on_gone is not None:
            try:
                on_gone()
            except Exception:
                _log.exception("request_not_cancelled", path=self.path, request_id=self.request_id)

    def respond(self, body: bytes, *, status: int = 200, headers: Headers = (), kind: bytes = JSON) -> None:
        """Answer with a whole body."""
        if not self._open():
            return
        connection = self._connection
        hot = connection.hot
        headers = (*headers, *hot.origins.headers(self.headers))
        if status == HTTP_OK and kind == JSON and not headers and self.keep_alive and not hot.lifecycle.stopping:
            common = hot.common(connection.server_state.default_headers)
            connection.send(plain_response(body, self.request_id, common))
        else:
            connection.send(self._head(status, kind, length(body), headers) + body)
        self._end(status)

    def fail(self, error: ApiError) -> None:
        """Answer with an error in OpenAI's shape."""
        if error.status == HTTPStatus.REQUEST_TIMEOUT:
            self.keep_alive = False
        self._error = error
        headers = [(name.lower().encode(), value.encode()) for name, value in error_headers(error).items()]
        self.respond(error_content(error, self.request_id), status=error.status, headers=headers)

    def begin(self, *, kind: bytes, headers: Headers = ()) -> None:
        """Begin an answer with status 200 whose parts come one by one."""
        if self._open():
            headers = (*headers, *self._connection.hot.origins.headers(self.headers))
            self._connection.send(self._head(HTTP_OK, kind, CHUNKED, headers))

    def write(self, part: bytes) -> None:
        """Send a part."""
        if part and not self.gone:
            self._connection.send(chunk(part))

    def end(self) -> None:
        """Say that the answer is complete."""
        if not self.gone:
            self._connection.send(LAST_CHUNK)
            self._end(HTTP_OK)

    def _handle(self) -> None:
        error = self._connection.hot.handle(self, self._known)
        if error is None:
            return
        if not self.response_started:
            self.fail(error)
        elif not self.response_complete:  # all that is left to say is that there is no end to it
            self._connection.transport.abort()

    def _open(self) -> bool:
        if self.gone:
            return False
        if self.response_started:
            raise RuntimeError(f"{self.path}: {self.request_id} has been answered already")
        self.response_started = True
        return True

    def _head(self, status: int, kind: bytes, framing: bytes, headers: Headers) -> bytes:
        connection = self._connection
        hot = connection.hot
        if hot.lifecycle.stopping and not connection.has_more:
            self.keep_alive = False
        return response_head(
            status,
            kind=kind,
            framing=framing,
            request_id=self.request_id,
            common=hot.common(connection.server_state.default_headers),
            headers=headers,
            close=not self.keep_alive,
        )

    def _end(self, status: int) -> None:
        assert self._started is not None
        self.response_complete = True
        self.on_gone = None
        self._connection.hot.count(self.path, status, self._started, self._error)
        if status >= HTTP_SERVER_ERROR and status != HTTP_UNAVAILABLE:
            _log.warning("answered_with_error", path=self.path, status=status, request_id=self.request_id)
        self._connection.answered(self)
