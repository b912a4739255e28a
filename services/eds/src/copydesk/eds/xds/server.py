"""The gRPC server: the aggregated and the endpoint discovery service, each in both variants of the protocol."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import grpc
import grpc.aio

from copydesk.common.messages import EndpointsSnapshot
from copydesk.common.telemetry import get_logger
from copydesk.eds.xds.catalogue import Catalogue
from copydesk.eds.xds.connections import connections
from copydesk.eds.xds.metrics import XdsMetrics
from copydesk.eds.xds.stream import Stream, SubscriptionError
from copydesk.eds.xds.terms import Terms, Tls, XdsSettingError
from copydesk.eds.xds.types import AGGREGATED_SERVICE, ENDPOINT_SERVICE, ENDPOINTS
from copydesk.eds.xds.variant import Incremental, Request, StateOfWorld, Variant

if TYPE_CHECKING:
    Context: TypeAlias = grpc.aio.ServicerContext[bytes, bytes]

# How often the weights of pods that have just begun are looked at.
WARM_UP_S = 1.0

# A request names resources and says what was wrong; this holds thousands of names.
LONGEST_REQUEST = 1 << 20

_KEEPALIVE_MS = 10_000

# A connection on which nobody speaks HTTP/2, or nobody has a stream, is closed after this time.
WORDLESS_MS = 5_000
IDLE_MS = 30_000

_OPTIONS = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", LONGEST_REQUEST),
    # A subscriber that is gone without a word is noticed within 20 s, and may itself ask twice as often.
    ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", _KEEPALIVE_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", _KEEPALIVE_MS // 2),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", _KEEPALIVE_MS // 2),
)

_log = get_logger(__name__)


class XdsServer:
    """Serves the snapshots that it is given; `port` is the one it listens on, once started.

    `clock` tells monotonic seconds; by default it is the event loop's.
    """

    def __init__(
        self,
        host: str,
        port: int,
        terms: Terms,
        metrics: XdsMetrics,
        *,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.port = port
        self._host = host
        self._terms = terms
        self._metrics = metrics
        self._catalogue = Catalogue(terms.slow_start)
        self._streams: set[Stream[Any]] = set()
        self._loop = asyncio.get_running_loop()
        self._clock = clock or self._loop.time
        self._warm_up: asyncio.TimerHandle | None = None
        limits = (
            ("grpc.max_allowed_incoming_connections", connections(terms.max_streams)),
            ("grpc.server_handshake_timeout_ms", WORDLESS_MS),
            ("grpc.max_connection_idle_ms", IDLE_MS),
        )
        self._server = grpc.aio.server(options=(*_OPTIONS, *limits))
        self._server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(
                    AGGREGATED_SERVICE,
                    {
                        "StreamAggregatedResources": self._handler(StateOfWorld(), ""),
                        "DeltaAggregatedResources": self._handler(Incremental(), ""),
                    },
                ),
                grpc.method_handlers_generic_handler(
                    ENDPOINT_SERVICE,
                    {
                        "StreamEndpoints": self._handler(StateOfWorld(), ENDPOINTS),
                        "DeltaEndpoints": self._handler(Incremental(), ENDPOINTS),
                    },
                ),
            )
        )

    async def start(self) -> None:
        """Listen; raise `XdsSettingError` if that is impossible."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        address = f"{host}:{self.port}"
        tls = self._terms.tls
        try:
            if tls is None:
                self.port = self._server.add_insecure_port(address)
            else:
                self.port = self._server.add_secure_port(address, _credentials(tls))
        except RuntimeError as error:
            problem = f"cannot listen at {address}: it is taken, or none of this machine's"
            if tls is not None:
                problem += ", or certificate and key do not fit each other"
            raise XdsSettingError("XDS_PORT", problem) from error
        await self._server.start()
        _log.info("xds_listening", host=self._host, port=self.port, tls=tls is not None)

    async def close(self) -> None:
        """End all streams, and stop listening. Subscribers keep what they have."""
        if self._warm_up is not None:
            self._warm_up.cancel()
        await self._server.stop(None)

    def on_snapshot(self, snapshot: EndpointsSnapshot) -> None:
        """Serve these endpoints of a model from now on, and tell those who want them."""
        update = self._catalogue.take(snapshot, self._clock(), time.time())
        if update.newly_left_out:
            _log.warning(
                "xds_endpoints_left_out",
                model=snapshot.model,
                endpoints=[f"{endpoint.id} ({endpoint.host})" for endpoint in update.newly_left_out[:20]],
                count=len(update.newly_left_out),
                problem="no IP address, or one that another endpoint has",
            )
        self._metrics.left_out(snapshot.model, update.left_out)
        if update.changed:
            self._notice(snapshot.model)
        self._keep_warming()

    def _keep_warming(self) -> None:
        if self._catalogue.warming and self._warm_up is None:
            self._warm_up = self._loop.call_later(WARM_UP_S, self._on_warm_up)

    def _on_warm_up(self) -> None:
        self._warm_up = None
        for model in self._catalogue.warm_up(self._clock()):
            self._notice(model)
        self._keep_warming()

    def _notice(self, model: str) -> None:
        for stream in self._streams:
            stream.notice(ENDPOINTS, model)

    def _handler(self, variant: Variant[Request], default_type: str) -> grpc.RpcMethodHandler[bytes, bytes]:
        async def serve(_requests: object, context: Context) -> None:
            await self._admit(context)
            await self._serve(variant, default_type, context)

        return grpc.stream_stream_rpc_method_handler(serve)

    async def _admit(self, context: Context) -> None:
        if not _shows(self._terms.token, context):
            self._metrics.refused("unauthenticated")
            await context.abort(
                grpc.StatusCode.UNAUTHENTICATED, "the header 'authorization: Bearer TOKEN' is needed"
            )
        if len(self._streams) >= self._terms.max_streams:
            self._metrics.refused("too_many_streams")
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many subscribers; try another replica")

    async def _serve(self, variant: Variant[Request], default_type: str, context: Context) -> None:
        stream = Stream(variant, self._catalogue, self._metrics, default_type=default_type)
        self._streams.add(stream)
        self._metrics.opened(variant.kind)
        try:
            await stream.run(_reader(context), context.write)
        except SubscriptionError as error:
            self._metrics.refused(error.reason)
            _log.warning("xds_stream_ended", reason=error.reason, problem=str(error), peer=context.peer())
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        finally:
            self._streams.discard(stream)
            self._metrics.closed(variant.kind)


def _reader(context: Context) -> Callable[[], Awaitable[bytes | None]]:
    async def read() -> bytes | None:
        request: Any = await context.read()
        return None if request is grpc.aio.EOF else request

    return read


def _shows(token: str, context: Context) -> bool:
    if not token:
        return True
    shown = dict(context.invocation_metadata() or ()).get("authorization", "")
    return hmac.compare_digest(str(shown).encode(), f"Bearer {token}".encode())


def _credentials(tls: Tls) -> grpc.ServerCredentials:
    return grpc.ssl_server_credentials(
        [(tls.key, tls.certificate)],
        root_certificates=tls.client_ca,
        require_client_auth=tls.client_ca is not None,
    )
