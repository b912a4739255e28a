"""The metrics of the xDS server, in Prometheus' naming."""

from __future__ import annotations

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge

from copydesk.eds.xds.variant import Kind


class XdsMetrics:
    """Counts and gauges of one xDS server, on `registry`."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._streams = Gauge("copydesk_eds_xds_streams", "Streams that are open.", ["kind"], registry=registry)
        self._refused = Counter(
            "copydesk_eds_xds_streams_refused_total", "Streams that were refused.", ["reason"], registry=registry
        )
        self._pushes = Counter(
            "copydesk_eds_xds_pushes_total", "Responses sent to subscribers.", ["kind"], registry=registry
        )
        self._resources = Counter(
            "copydesk_eds_xds_resources_sent_total", "Resources in these responses.", ["kind"], registry=registry
        )
        self._nacks = Counter(
            "copydesk_eds_xds_nacks_total", "Responses that subscribers refused.", ["kind"], registry=registry
        )
        self._left_out = Gauge(
            "copydesk_eds_xds_left_out_endpoints",
            "Endpoints without a place in an assignment: no IP address, or one that another has.",
            ["model"],
            registry=registry,
        )
        for kind in Kind:
            for metric in (self._streams, self._pushes, self._resources, self._nacks):
                metric.labels(kind.value)

    def opened(self, kind: Kind) -> None:
        """Count a stream that begins."""
        self._streams.labels(kind.value).inc()

    def closed(self, kind: Kind) -> None:
        """Count a stream that has ended."""
        self._streams.labels(kind.value).dec()

    def refused(self, reason: str) -> None:
        """Count a stream that was not let in, or was ended for asking too much."""
        self._refused.labels(reason).inc()

    def pushed(self, kind: Kind, resources: int) -> None:
        """Count a response and what is in it."""
        self._pushes.labels(kind.value).inc()
        self._resources.labels(kind.value).inc(resources)

    def nacked(self, kind: Kind) -> None:
        """Count a response that was refused."""
        self._nacks.labels(kind.value).inc()

    def left_out(self, model: str, endpoints: int) -> None:
        """Show how many endpoints of a model cannot be assigned."""
        self._left_out.labels(model).set(endpoints)
