"""Where parts of images come from, how long that takes, and how full the nodes' caches are."""

from __future__ import annotations

from deploy.grafana.panels import Choice, Dashboard, Kind, Panel, Query, Row, Unit

_OF = '{instance=~"$instance"}'
_WINDOW = "[$__rate_interval]"


def _rate(metric: str, by: str) -> str:
    return f"sum by ({by}) (rate(copydesk_imagefetcher_{metric}{_OF}{_WINDOW}))"


_FETCHED = Row(
    "Fetched",
    (
        Panel(
            "Bytes by source",
            "Unpacked, from peers, mirrors and the registry.",
            Unit.BYTES_PER_SECOND,
            (Query(_rate("fetched_bytes_total", "source"), "{{source}}"),),
            Kind.STACK,
        ),
        Panel(
            "Parts by reason",
            "demand: a reader waits. The others are ahead of readers.",
            Unit.PER_SECOND,
            (Query(_rate("fetched_sectors_total", "priority"), "{{priority}}"),),
            Kind.STACK,
        ),
        Panel(
            "Duration of a request",
            "P99, by source.",
            Unit.SECONDS,
            (Query(f"histogram_quantile(0.99, {_rate('fetch_seconds_bucket', 'le, source')})", "{{source}}"),),
        ),
    ),
)

_READS = Row(
    "Reads",
    (
        Panel(
            "Found in the cache",
            "Share of reads that need not wait for the network. Near 100 % once images are complete.",
            Unit.SHARE,
            (
                Query(
                    f"{_rate('hits_total', 'instance')} / "
                    f"({_rate('hits_total', 'instance')} + {_rate('misses_total', 'instance')})",
                    "{{instance}}",
                ),
            ),
        ),
        Panel(
            "Reads that failed",
            "No source had what a container read: it saw an error of its disk.",
            Unit.NONE,
            (
                Query(
                    f"sum by (instance) (increase(copydesk_imagefetcher_failed_reads_total{_OF}[5m]))",
                    "{{instance}}",
                ),
            ),
        ),
        Panel(
            "Sources that failed",
            "By what was wrong; another source is asked then.",
            Unit.PER_SECOND,
            (Query(_rate("source_failures_total", "source, fault") + " > 0", "{{source}} {{fault}}"),),
            Kind.STACK,
        ),
    ),
)

_CACHE = Row(
    "Cache",
    (
        Panel(
            "Size",
            "Of each node's cache, as a share of what it may have.",
            Unit.SHARE,
            (
                Query(
                    f"copydesk_imagefetcher_cache_bytes{_OF} / copydesk_imagefetcher_cache_limit_bytes{_OF}",
                    "{{instance}}",
                ),
            ),
        ),
        Panel(
            "Evicted, refused, corrupt",
            "evicted: made room for others. refused: the disk is full. corrupt: a part did not match its digest, "
            "and was fetched again.",
            Unit.PER_SECOND,
            (
                Query(_rate("cache_evictions_total", "job"), "evicted"),
                Query(_rate("cache_refused_total", "job"), "refused"),
                Query(_rate("cache_corrupt_total", "job"), "corrupt"),
            ),
        ),
        Panel(
            "Given to peers",
            "Bytes that nodes took from one another rather than from the registry.",
            Unit.BYTES_PER_SECOND,
            (Query(_rate("peer_served_bytes_total", "instance"), "{{instance}}"),),
        ),
    ),
)

_IMAGES = Row(
    "Images",
    (
        Panel(
            "Known", "Images by node.", Unit.NONE, (Query(f"copydesk_imagefetcher_images{_OF}", "{{instance}}"),)
        ),
        Panel(
            "Mounted",
            "Mounts by node.",
            Unit.NONE,
            (Query(f"copydesk_imagefetcher_mounts{_OF}", "{{instance}}"),),
        ),
    ),
)

DASHBOARD = Dashboard(
    "image-fetcher",
    "Copydesk: image fetcher",
    "Where parts of images come from, how long that takes, and how full the nodes' caches are.",
    (_FETCHED, _READS, _CACHE, _IMAGES),
    (Choice("instance", "copydesk_imagefetcher_images", "instance"),),
)
