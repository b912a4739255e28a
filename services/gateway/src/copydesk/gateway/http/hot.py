"""What the connections of a server share on the hot path: where it leads, who may take it, what is counted.

The hot path takes a plain `POST` to one of its paths from the parser straight to its handler: no ASGI scope, no
task, no router. That is most of what a request costs otherwise. Whatever is not plain (a chunked or too large
body, a client that asks before it sends one, a query, an old HTTP version) goes through ASGI to the same handler,
with the same answer: see `bridge`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Protocol

from copydesk.common.telemetry import get_logger
from copydesk.gateway import faults
from copydesk.gateway.faults import ApiError
from copydesk.gateway.http.deadlines import Deadlines
from copydesk.gateway.http.exchange import Exchange, Handler
from copydesk.gateway.http.known import KnownHead, KnownHeads
from copydesk.gateway.http.origins import Origins
from copydesk.gateway.lane.resumption import Resuming
from copydesk.gateway.lane.seams import Connection, Seat
from copydesk.gateway.lifecycle import Lifecycle
from copydesk.gateway.metrics import Metrics
from copydesk.gateway.validation import check_content_type

Authorize = Callable[[Mapping[bytes, bytes]], str]
"""Returns the name of the key that stands in the headers, empty where keys are off; raises `ApiError`."""

JSON = b"application/json"

_log = get_logger(__name__)


class Late(Protocol):
    """What waits for its body."""

    def __hash__(self) -> int: ...

    def body_late(self, seconds: float) -> None:
        """The body has not come in time."""


class HotRequest(Exchange, Protocol):
    """An exchange with what handles it; `let_in` says that its client was found and its head is right."""

    handler: Handler
    let_in: bool


class Writer(Protocol):
    """What has something to write at the end of this turn of the loop."""

    def flush(self) -> None:
        """Write it."""


class Lane(Protocol):
    """What takes plain requests off the hot path: see `copydesk.gateway.lane.express`.

    `on_forget` is called when it has forgotten all heads, so that they come to be learned again.
    """

    on_forget: Callable[[], None] | None

    def seat(self, connection: Connection, transport: asyncio.Transport) -> Seat:
        """Return what takes requests off a client's connection."""

    def learn(self, head: bytes, exchange: Exchange) -> None:
        """Take requests with this head from now on."""


class HotPath:
    """Make one for a server, on its event loop; `handlers` are by path.

    What `authorize` returned holds for as long as `epoch` returns the same object.
    """

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        *,
        authorize: Authorize,
        metrics: Metrics,
        lifecycle: Lifecycle,
        max_body_bytes: int,
        body_timeout: float,
        epoch: Callable[[], object] = object,
        lane: Lane | None = None,
        resuming: Resuming | None = None,
        origins: Origins | None = None,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.routes = {path.encode("ascii"): (path, handler) for path, handler in handlers.items()}
        self.metrics = metrics
        self.lifecycle = lifecycle
        self.max_body_bytes = max_body_bytes
        self.bodies: Deadlines[Late] = Deadlines(self.loop, body_timeout, self._on_late)
        self.known = KnownHeads()
        self.lane = lane
        if lane is not None:
            lane.on_forget = self.known.forget
        self.resuming = resuming or Resuming()
        self.origins = origins or Origins()
        self._authorize = authorize
        self._epoch = epoch
        self._writers: list[Writer] = []
        self._default_headers: object = None
        self._common = b""

    def fits(self, headers: Mapping[bytes, bytes]) -> bool:
        """Whether a request with these headers is plain enough, and its body not too large."""
        declared = headers.get(b"content-length")
        return (
            declared is not None
            and len(declared) < 12
            and int(declared) <= self.max_body_bytes
            and b"transfer-encoding" not in headers
            and b"expect" not in headers
            and b"upgrade" not in headers
        )

    def admit(self, headers: Mapping[bytes, bytes]) -> str:
        """Check what every handler wants checked; return the client's name. Raises `ApiError`."""
        client = self._authorize(headers)
        kind = headers.get(b"content-type")
        if kind != JSON:
            check_content_type(None if kind is None else kind.decode("latin-1"))
        return client

    def recognise(self, known: KnownHead) -> str:
        """As `admit`, for a head that has been looked at before. Raises `ApiError`."""
        epoch = self._epoch()
        if known.epoch is not epoch:
            known.client = self.admit(known.headers)
            known.epoch = epoch
        return known.client

    def handle(self, exchange: HotRequest, known: KnownHead | None) -> ApiError | None:
        """Have a request handled; return the error that it is to be answered with, if that failed at once."""
        try:
            exchange.client = self.admit(exchange.headers) if known is None else self.recognise(known)
            exchange.let_in = True
            exchange.handler(exchange)
        except ApiError as error:
            return error
        except Exception:
            _log.exception("request_failed", method="POST", path=exchange.path, request_id=exchange.request_id)
            return faults.unexpected()
        return None

    def count(self, route: str, status: int, started: float, error: ApiError | None = None) -> None:
        """Count a request that has come to its end, by `error` if so; `started` is of `perf_counter`."""
        self.metrics.in_flight -= 1
        self.metrics.request(route, status, perf_counter() - started, error)

    def common(self, default_headers: list[tuple[bytes, bytes]]) -> bytes:
        """Return the lines of uvicorn's own headers, of which it makes a new list each second."""
        if default_headers is not self._default_headers:
            self._default_headers = default_headers
            self._common = b"".join(b"%b: %b\r\n" % header for header in default_headers)
        return self._common

    def flush_soon(self, writer: Writer) -> None:
        """Have `writer` flush once this turn of the loop is through: one write for all that it has by then."""
        if not self._writers:
            self.loop.call_soon(self._flush)
        self._writers.append(writer)

    def _flush(self) -> None:
        writers, self._writers = self._writers, []
        for writer in writers:
            writer.flush()

    def _on_late(self, late: Late) -> None:
        late.body_late(self.bodies.seconds)
