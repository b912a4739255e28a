"""The gate in front of a handler: requests of limited clients are counted in and out."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from copydesk.common.telemetry import get_logger
from copydesk.gateway import faults
from copydesk.gateway.access.gatekeeper import Gatekeeper, Visit
from copydesk.gateway.faults import ApiError
from copydesk.gateway.http.exchange import Exchange, Handler, Headers

_log = get_logger(__name__)


def admitting(handler: Handler, gatekeeper: Gatekeeper) -> Handler:
    """Return a handler that handles what the gatekeeper lets in, and refuses the rest.

    A request of a client without limits is passed on as it is.
    """

    def handle(exchange: Exchange) -> None:
        if gatekeeper.limited(exchange.client):
            Admission(gatekeeper, handler, exchange).ask()
        else:
            handler(exchange)

    return handle


class Admission(Visit):
    """A request that asks to be let in, and its `Exchange` once it is: so it sees the end, an answer or none."""

    __slots__ = (
        "_answered",
        "_asking",
        "_exchange",
        "_handler",
        "arrived",
        "body",
        "headers",
        "on_gone",
        "path",
        "request_id",
    )

    def __init__(self, gatekeeper: Gatekeeper, handler: Handler, exchange: Exchange) -> None:
        super().__init__(gatekeeper, exchange.client)
        self.path: str = exchange.path
        self.request_id: str = exchange.request_id
        self.headers: Mapping[bytes, bytes] = exchange.headers
        self.body: bytes = exchange.body
        self.arrived: float = exchange.arrived
        self.on_gone: Callable[[], None] | None = None
        self._handler = handler
        self._exchange = exchange
        self._answered = self._asking = False
        exchange.on_gone = self._on_client_gone

    def ask(self) -> None:
        """Ask, and have the request handled if it is let in at once; raises what the handler raises then."""
        self._asking = True
        try:
            self._gatekeeper.ask(self)
        except BaseException:
            self.leave()
            raise
        finally:
            self._asking = False

    def admitted(self) -> None:
        """Have the request handled; what goes wrong at once is for whoever asked to deal with."""
        if self._asking:
            self._handler(self)
            return
        try:
            self._handler(self)
        except ApiError as error:
            self._fail_late(error)
        except Exception:
            _log.exception("request_failed", path=self.path, request_id=self.request_id)
            self._fail_late(faults.unexpected())

    def refused(self, error: ApiError) -> None:
        """Answer with why."""
        self._exchange.fail(error)

    def respond(
        self, body: bytes, *, status: int = 200, headers: Headers = (), kind: bytes = b"application/json"
    ) -> None:
        """Answer with a whole body."""
        self._answered = True
        self.leave()
        self._exchange.respond(body, status=status, headers=headers, kind=kind)

    def fail(self, error: ApiError) -> None:
        """Answer with an error."""
        self._answered = True
        self.leave()
        self._exchange.fail(error)

    def begin(self, *, kind: bytes, headers: Headers = ()) -> None:
        """Begin an answer whose parts come one by one."""
        self._answered = True
        self._exchange.begin(kind=kind, headers=headers)

    def write(self, part: bytes) -> None:
        """Send a part."""
        self._exchange.write(part)

    def end(self) -> None:
        """Say that the answer is complete."""
        self.leave()
        self._exchange.end()

    def _fail_late(self, error: ApiError) -> None:
        if self._answered:
            self.leave()
        else:
            self.fail(error)

    def _on_client_gone(self) -> None:
        self.leave()
        if self.on_gone is not None:
            self.on_gone()
