"""A span around each request of a handler: what is asked of pods meanwhile becomes a part of the same trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from copydesk.common.tracing import Span, tracing
from copydesk.gateway.faults import ApiError
from copydesk.gateway.http.exchange import Exchange, Handler, Headers, header


def traced(handler: Handler) -> Handler:
    """Return a handler whose requests are traced; while tracing is off, the handler itself."""
    if not tracing.on:
        return handler

    def handle(exchange: Exchange) -> None:
        span = tracing.start(
            f"POST {exchange.path}", header(exchange, b"traceparent") or "", request_id=exchange.request_id
        )
        if span is None:
            handler(exchange)
            return
        inner = TracedExchange(exchange, span)
        try:
            with tracing.within(span.traceparent):
                handler(inner)
        except ApiError as error:
            inner.ended(error.code, status=error.status)
            raise
        except BaseException as error:
            inner.ended(type(error).__name__)
            raise

    return handle


class TracedExchange:
    """An `Exchange` that ends its span with the answer, or when the client has gone."""

    def __init__(self, exchange: Exchange, span: Span) -> None:
        self.path: str = exchange.path
        self.request_id: str = exchange.request_id
        self.headers: Mapping[bytes, bytes] = exchange.headers
        self.body: bytes = exchange.body
        self.arrived: float = exchange.arrived
        self.client: str = exchange.client
        self.on_gone: Callable[[], None] | None = None
        self._exchange = exchange
        self._span: Span | None = span
        exchange.on_gone = self._gone

    def ended(self, error: str = "", *, status: int = 0) -> None:
        """End the span, if it has not ended."""
        span, self._span = self._span, None
        if span is not None:
            span.end(error, status=status)

    def respond(
        self, body: bytes, *, status: int = 200, headers: Headers = (), kind: bytes = b"application/json"
    ) -> None:
        """Answer with a whole body."""
        self._exchange.respond(body, status=status, headers=headers, kind=kind)
        self.ended(status=status)

    def fail(self, error: ApiError) -> None:
        """Answer with an error."""
        self._exchange.fail(error)
        self.ended(error.code, status=error.status)

    def begin(self, *, kind: bytes, headers: Headers = ()) -> None:
        """Begin an answer whose parts come one by one."""
        self._exchange.begin(kind=kind, headers=headers)

    def write(self, part: bytes) -> None:
        """Send a part."""
        self._exchange.write(part)

    def end(self) -> None:
        """Say that the answer is complete."""
        self._exchange.end()
        self.ended(status=200)

    def _gone(self) -> None:
        self.ended("client_gone")
        if self.on_gone is not None:
            self.on_gone()
