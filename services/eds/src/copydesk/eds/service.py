"""The running service: it feeds discovery with events and time, and publishes what it decides."""

from __future__ import annotations

import asyncio
import time

from copydesk.common.bus import Bus
from copydesk.common.messages import Endpoint, EndpointsSnapshot, endpoints_subject
from copydesk.common.telemetry import get_logger
from copydesk.eds.discovery import Discovery
from copydesk.eds.journal import tell
from copydesk.eds.metrics import Metrics
from copydesk.eds.probe import Prober
from copydesk.eds.roster import Elapsed, Event, Reported, Step
from copydesk.eds.settings import EdsSettings
from copydesk.eds.source import Source

# How often time is told to discovery when nothing happens; it bounds how late silence is noticed.
TICK_S = 0.1

_log = get_logger(__name__)


class Service:
    """One source, one publisher, on one event loop; `epoch` marks its snapshots (its start, in Unix ms)."""

    def __init__(self, settings: EdsSettings, bus: Bus, source: Source, metrics: Metrics, *, epoch: int) -> None:
        self._bus = bus
        self._source = source
        self._metrics = metrics
        self._discovery = Discovery(settings.policy(), epoch)
        self._hold_limit_ms = settings.hold_limit_ms
        self._prober = Prober(
            self._on_gone,
            token=settings.rpc_token.get_secret_value(),
            timeout=settings.probe_timeout_ms / 1000,
        )
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._last_event = self._loop.time()
        metrics.watch(event_age=lambda: self._loop.time() - self._last_event, connected=lambda: bus.connected)

    async def run(self) -> None:
        """Serve until cancelled; raise what the source raises if it cannot start."""
        try:
            await self._source.start(self._on_event)
            while True:
                pause = self._turn()
                await self._rest(pause)
        finally:
            await self._source.close()
            await self._prober.close()

    async def _rest(self, pause: float) -> None:
        try:
            async with asyncio.timeout(pause):
                await self._wake.wait()
        except TimeoutError:
            return
        self._wake.clear()

    def _turn(self) -> float:
        """Bring everything up to now; return for how many seconds nothing is to be done, unless woken."""
        now = self._loop.time()
        connected = self._bus.connected
        self._discovery.apply(Elapsed(now, self._bus.connected_since if connected else None))
        for verdict in self._discovery.review(now):
            tell(verdict, hold_limit_ms=self._hold_limit_ms)
            self._metrics.reviewed(verdict)
        self._prober.watch(self._discovery.suspects())
        if not connected:
            return TICK_S
        for snapshot in self._discovery.collect(now, time.time()):
            self._publish(snapshot)
        return max(0.0, min(TICK_S, self._discovery.due_at() - now))

    def _publish(self, snapshot: EndpointsSnapshot) -> None:
        self._bus.publish(endpoints_subject(snapshot.model), snapshot)
        self._metrics.published(snapshot.model)

    def _on_event(self, event: Event) -> None:
        self._last_event = self._loop.time()
        step = self._discovery.apply(event)
        if isinstance(event, Reported):
            self._count(event, step)
        if step.changed:
            self._wake.set()

    def _count(self, event: Reported, step: Step) -> None:
        self._metrics.report_received(step.dropped)
        if step.dropped is not None:
            report = event.report
            _log.debug(
                "report_dropped",
                reason=step.dropped.value,
                model=report.model,
                pod=report.pod,
                sequence=report.sequence,
            )

    def _on_gone(self, model: str, endpoint: Endpoint) -> None:
        self._discovery.confirm_gone(model, endpoint)
        self._wake.set()
