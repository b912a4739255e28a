"""Certificates that end: told as a metric at all times, and in the log for two weeks before."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from copydesk.common.telemetry import get_logger
from copydesk.common.tls.credentials import Credentials

ENDS_SOON_SECONDS = 14 * 86_400.0
"""Who is told for so long finds a working day in it, also over holidays."""

LOOK_SECONDS = 30.0
REPEAT_SECONDS = 86_400.0

METRIC = "tls_certificate_expiry_timestamp_seconds"
HELP = "When a certificate in use ends, in seconds since 1970; authority is the last of those that peers' are of."

_log = get_logger(__name__)


class Expiries:
    """Keeps an eye on the credentials of one process; `clock` gives seconds since 1970."""

    def __init__(self, credentials: Sequence[Credentials], clock: Callable[[], float] = time.time) -> None:
        self._credentials = credentials
        self._clock = clock
        self._told: dict[tuple[str, str], float] = {}

    def samples(self) -> Iterator[tuple[str, str, float]]:
        """Yield link, part (`certificate` or `authority`) and when it ends."""
        for each in self._credentials:
            yield each.files.link, "certificate", each.lifetimes.certificate
            yield each.files.link, "authority", each.lifetimes.authority

    def look(self) -> None:
        """Read what has changed, and warn of what ends soon: at first, and then once a day."""
        for each in self._credentials:
            each.look()
        now = self._clock()
        for link, part, end in self.samples():
            if end - now >= ENDS_SOON_SECONDS:
                self._told.pop((link, part), None)
            elif now - self._told.get((link, part), -REPEAT_SECONDS) >= REPEAT_SECONDS:
                self._told[link, part] = now
                ends, days = datetime.fromtimestamp(end, UTC).isoformat(), int((end - now) / 86_400)
                _log.warning("tls_certificate_ends_soon", link=link, part=part, ends=ends, days=days)

    async def run(self) -> None:
        """Look for ever, if there is anything to look at."""
        while self._credentials:
            self.look()
            await asyncio.sleep(LOOK_SECONDS)


class ExpiryCollector(Collector):
    """The metric `copydesk_<service>_tls_certificate_expiry_timestamp_seconds`; without TLS it has no samples."""

    def __init__(self, service: str, expiries: Expiries) -> None:
        self._name = f"copydesk_{service}_{METRIC}"
        self._expiries = expiries

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """What Prometheus reads."""
        family = GaugeMetricFamily(self._name, HELP, labels=("link", "part"))
        for link, part, end in self._expiries.samples():
            family.add_metric((link, part), end)
        yield family


@asynccontextmanager
async def expiry_watched(
    service: str, credentials: Sequence[Credentials], registry: CollectorRegistry
) -> AsyncIterator[None]:
    """Tell the metric of a service, and what ends soon, for as long as this is entered."""
    expiries = Expiries(credentials)
    collector = ExpiryCollector(service, expiries)
    registry.register(collector)
    looking = asyncio.create_task(expiries.run(), name="certificates")
    try:
        yield
    finally:
        registry.unregister(collector)
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
