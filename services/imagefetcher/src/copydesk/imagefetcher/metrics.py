"""The metrics of the image fetcher, in Prometheus' naming."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from copydesk.imagefetcher.fetch.agenda import Priority
from copydesk.imagefetcher.fetch.errors import Fault
from copydesk.imagefetcher.fetch.source import SourceKind
from copydesk.imagefetcher.store.sectors import SectorStore

_PREFIX = "copydesk_imagefetcher"
_FETCH_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """Counts and gauges of one daemon, on `registry`."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self.registry = registry
        self._hits = Counter(f"{_PREFIX}_hits", "Parts of sectors that reads found cached.", registry=registry)
        self._misses = Counter(
            f"{_PREFIX}_misses", "Parts of sectors that reads had to wait for.", registry=registry
        )
        self._bytes = Counter(
            f"{_PREFIX}_fetched_bytes", "Plain bytes of sectors fetched.", ["source"], registry=registry
        )
        self._sectors = Counter(
            f"{_PREFIX}_fetched_sectors", "Sectors fetched, by why.", ["priority"], registry=registry
        )
        self._latency = Histogram(
            f"{_PREFIX}_fetch_seconds",
            "Time of a request for one or more sectors, checked and unpacked.",
            ["source"],
            buckets=_FETCH_BUCKETS,
            registry=registry,
        )
        self._faults = Counter(
            f"{_PREFIX}_source_failures", "Requests that a source failed.", ["source", "fault"], registry=registry
        )
        self._failed = Counter(
            f"{_PREFIX}_failed_reads",
            "Reads answered with an error, as no source had the sector.",
            registry=registry,
        )
        self._served = Counter(
            f"{_PREFIX}_peer_served_bytes", "Bytes of sectors given to peers.", registry=registry
        )
        self._images = Gauge(f"{_PREFIX}_images", "Images that the node knows.", registry=registry)
        self._mounts = Gauge(f"{_PREFIX}_mounts", "Mounts of images.", registry=registry)
        for kind in SourceKind:
            self._bytes.labels(kind.label)
            for fault in Fault:
                self._faults.labels(kind.label, fault.value)
        for priority in Priority:
            self._sectors.labels(priority.name.lower())

    def watch(self, store: SectorStore, *, images: Callable[[], int], mounts: Callable[[], int]) -> None:
        """Read what these say whenever the metrics are asked for."""
        self.registry.register(_StoreCollector(store))
        self._images.set_function(lambda: float(images()))
        self._mounts.set_function(lambda: float(mounts()))

    def hit(self) -> None:
        """Count a part of a read that was cached."""
        self._hits.inc()

    def missed(self) -> None:
        """Count a part of a read that has to be fetched."""
        self._misses.inc()

    def fetched(self, kind: SourceKind, priority: Priority, sizes: list[int], seconds: float) -> None:
        """Count sectors of these sizes that one request has brought."""
        self._bytes.labels(kind.label).inc(sum(sizes))
        self._sectors.labels(priority.name.lower()).inc(len(sizes))
        self._latency.labels(kind.label).observe(seconds)

    def source_failed(self, kind: SourceKind, fault: Fault) -> None:
        """Count a request that a source has failed."""
        self._faults.labels(kind.label, fault.value).inc()

    def read_failed(self) -> None:
        """Count a read that is answered with an error."""
        self._failed.inc()

    def served(self, amount: int) -> None:
        """Count bytes given to a peer."""
        self._served.inc(amount)


class _StoreCollector(Collector):
    """What the store counts itself, read when asked for."""

    def __init__(self, store: SectorStore) -> None:
        self._store = store

    def collect(self) -> list[Metric]:
        counts = self._store.counts
        return [
            CounterMetricFamily(f"{_PREFIX}_cache_corrupt", "Cached sectors found corrupt.", value=counts.corrupt),
            CounterMetricFamily(f"{_PREFIX}_cache_evictions", "Sectors evicted.", value=counts.evicted),
            CounterMetricFamily(
                f"{_PREFIX}_cache_refused", "Sectors that the disk had no room for.", value=counts.refused
            ),
            _gauge("cache_bytes", "Bytes of sectors cached.", self._store.total),
            _gauge("cache_limit_bytes", "Bytes of sectors that may be cached.", self._store.limit),
        ]


def _gauge(name: str, meaning: str, value: float) -> Metric:
    metric = Metric(f"{_PREFIX}_{name}", meaning, "gauge")
    metric.add_sample(f"{_PREFIX}_{name}", {}, value)
    return metric
