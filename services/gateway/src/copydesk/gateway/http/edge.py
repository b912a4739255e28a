"""What every HTTP request passes first and last: its id, its count, its unread body, and what nobody caught."""

from __future__ import annotations

from http.client import SERVICE_UNAVAILABLE
from time import perf_counter
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from copydesk.common.telemetry import get_logger, request_context
from copydesk.gateway import faults
from copydesk.gateway.faults import CLIENT_GONE, ApiError
from copydesk.gateway.http.inbox import Inbox
from copydesk.gateway.http.origins import Origins
from copydesk.gateway.http.request_ids import request_id
from copydesk.gateway.http.responses import error_response
from copydesk.gateway.lifecycle import Lifecycle
from copydesk.gateway.metrics import Metrics

_log = get_logger(__name__)


class Edge:
    """ASGI middleware, outermost. It leaves `request_id` and `inbox` in the request's state.

    Whoever answers with an error leaves that there, as `error`, to be counted.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, lifecycle: Lifecycle, origins: Origins) -> None:
        self._app = app
        self._metrics = metrics
        self._lifecycle = lifecycle
        self._origins = origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI scope."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(scope, receive, send, self._lifecycle, self._origins)
        self._metrics.in_flight += 1
        try:
            with request_context(exchange.request_id):
                await exchange.run(self._app)
        finally:
            self._metrics.in_flight -= 1
            seconds = perf_counter() - exchange.started
            self._metrics.request(exchange.route, exchange.status, seconds, exchange.error)


class _Exchange:
    def __init__(self, scope: Scope, receive: Receive, send: Send, lifecycle: Lifecycle, origins: Origins) -> None:
        self.started = perf_counter()
        headers = dict(scope["headers"])
        self.request_id = request_id(headers.get(b"x-request-id"))
        self._of_origins = origins.headers(headers)
        self._status = CLIENT_GONE
        # The server leaves the body of an answer to HEAD away: load balancers look at health that way.
        self._scope = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope
        self._send = send
        self._lifecycle = lifecycle
        self._inbox = Inbox(scope, receive)
        self._state: dict[str, Any] = self._scope.setdefault("state", {})
        self._state.update(request_id=self.request_id, inbox=self._inbox)

    @property
    def route(self) -> str:
        """The pattern of the route that took the request."""
        path = getattr(self._scope.get("route"), "path", None)
        return path if isinstance(path, str) else "unmatched"

    @property
    def status(self) -> int:
        """What is counted: the status that was sent, unless the client did not wait for all of the answer."""
        return CLIENT_GONE if self._inbox.deserted else self._status

    @property
    def error(self) -> ApiError | None:
        """The error that it was answered with."""
        error = self._state.get("error")
        return error if isinstance(error, ApiError) else None

    async def run(self, app: ASGIApp) -> None:
        try:
            await app(self._scope, self._inbox, self.send)
        except Exception:
            _log.exception("request_failed", method=self._scope["method"], path=self._scope["path"])
            if self._status == CLIENT_GONE:
                error = self._state["error"] = faults.unexpected()
                await error_response(error, self.request_id)(self._scope, self._inbox, self.send)

    async def send(self, message: Message) -> None:
        """Send one ASGI message, the head of the response with what every response has."""
        if message["type"] == "http.response.start":
            self._status = message["status"]
            headers = [*message.get("headers", ()), (b"x-request-id", self.request_id.encode("ascii"))]
            headers.append((b"x-content-type-options", b"nosniff"))
            headers.extend(self._of_origins)
            if self._inbox.uninvited or self._lifecycle.stopping:
                headers.append((b"connection", b"close"))
            else:
                await self._inbox.drain()
            message = {**message, "headers": headers}
            if self._status >= 500 and self._status != SERVICE_UNAVAILABLE:
                _log.warning("answered_with_error", path=self._scope["path"], status=self._status)
        await self._send(message)
