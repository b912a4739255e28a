"""When the certificates of a gateway end, among its metrics."""

from __future__ import annotations

from collections.abc import Iterator

from copydesk.common.tls import Expiries
from copydesk.common.tls.expiry import HELP, METRIC
from copydesk.gateway.metrics import Family


def expiry_families(expiries: Expiries) -> Iterator[Family]:
    """What Prometheus reads; without TLS there are no samples."""
    samples = [((("link", link), ("part", part)), end) for link, part, end in expiries.samples()]
    yield METRIC, "gauge", HELP, samples
