"""The gate in front of a handler: requests of limited clients are counted in and out."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from copydesk.common.telemetry import get_logger
from copydesk.gateway import faults
from copydesk.gateway.access.gatekeeper import Gatekeeper, Release
from copydesk.gateway.faults import ApiError
from copydesk.gateway.http.exchange import Exchange, Handler, Headers

_log = get_logger(__name__)


def admitting(handler: Handler, gatekeeper: Gatekeeper) -> Handler:
    """Return a handler that handles what the gatekeeper lets in, and refuses the rest.

    A request of a client without limits is passed on as it is.
    """

    def handle(exchange: Exchange) -> None:
        if gatekeeper.limited(exchange.client):
            _Admission(handler, exchange).ask(gatekeeper)
        else:
            handler(exchange)

    return handle


class _Admission:
    """One request that asks to be let in."""

    __slots__ = ("_admitted", "_asked", "_counted", "_exchange", "_handler")

    def __init__(self, handler: Handler, exchange: Exchange) -> None:
        self._handler = handler
        self._exchange = exchange
        self._counted = Counted(exchange)
        self._asked = self._admitted = False

    def ask(self, gatekeeper: Gatekeeper) -> None:
        """Ask, and have the request handled if the answer is there at once; raises what the handler raises."""
        self._counted.release = gatekeeper.enter(self._exchange.client, self._on_admitted, self._exchange.fail)
        self._asked = True
        if self._admitted:
            self._handle()

    def _on_admitted(self) -> None:
        self._admitted = True
        if not self._asked:  # the end cannot be told yet
            return
        try:
            self._handle()
        except ApiError as error:
            self._counted.fail_late(error)
        except Exception:
            exchange = self._exchange
            _log.exception("request_failed", path=exchange.path, request_id=exchange.request_id)
            self._counted.fail_late(faults.unexpected())

    def _handle(self) -> None:
        try:
            self._handler(self._counted)
        except BaseException:
            self._counted.release()
            raise


class Counted:
    """An `Exchange` that says when it ends: answered, or left by its client."""

    __slots__ = (
        "_answered",
        "_exchange",
        "arrived",
        "body",
        "client",
        "headers",
        "on_gone",
        "path",
        "release",
        "request_id",
    )

    def __init__(self, exchange: Exchange) -> None:
        self.path: str = exchange.path
        self.request_id: str = exchange.request_id
        self.headers: Mapping[bytes, bytes] = exchange.headers
        self.body: bytes = exchange.body
        self.arrived: float = exchange.arrived
        self.client: str = exchange.client
        self.on_gone: Callable[[], None] | None = None
        self.release: Release = _not_in
        self._answered = False
        self._exchange = exchange
        exchange.on_gone = self._leave

    def respond(
        self, body: bytes, *, status: int = 200, headers: Headers = (), kind: bytes = b"application/json"
    ) -> None:
        """Answer with a whole body."""
        self._answered = True
        self.release()
        self._exchange.respond(body, status=status, headers=headers, kind=kind)

    def fail(self, error: ApiError) -> None:
        """Answer with an error."""
        self._answered = True
        self.release()
        self._exchange.fail(error)

    def fail_late(self, error: ApiError) -> None:
        """Answer with an error, unless there is an answer already."""
        if not self._answered:
            self.fail(error)

    def begin(self, *, kind: bytes, headers: Headers = ()) -> None:
        """Begin an answer whose parts come one by one."""
        self._answered = True
        self._exchange.begin(kind=kind, headers=headers)

    def write(self, part: bytes) -> None:
        """Send a part."""
        self._exchange.write(part)

    def end(self) -> None:
        """Say that the answer is complete."""
        self.release()
        self._exchange.end()

    def _leave(self) -> None:
        self.release()
        if self.on_gone is not None:
            self.on_gone()


def _not_in() -> None:
    """Release what was not let in."""
