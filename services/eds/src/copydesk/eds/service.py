"""The running service: it feeds discovery with events and time, and publishes what it decides."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from copydesk.common.bus import Bus
from copydesk.common.messages import Endpoint, EndpointsSnapshot, endpoints_subject
from copydesk.common.rpc.tokens import shown_token
from copydesk.common.telemetry import get_logger
from copydesk.common.tls import ClientTls
from copydesk.eds.discovery import Discovery
from copydesk.eds.journal import tell
from copydesk.eds.leadership import Leadership
from copydesk.eds.metrics import Metrics
from copydesk.eds.probe import Prober
from copydesk.eds.roster import Elapsed, Event, Listed, Reported, Step
from copydesk.eds.settings import EdsSettings, SourceKind
from copydesk.eds.source import Source
from copydesk.eds.view import HeldView, ModelView, ReplicaView

# How often time is told to discovery when nothing happens; it bounds how late silence is noticed.
TICK_S = 0.1

OnSnapshot = Callable[[EndpointsSnapshot], None]

_log = get_logger(__name__)


class Service:
    """One replica: a source, on one event loop, published over NATS while this replica is the leader.

    `listeners` are called with each snapshot that differs from the model's last one, whoever leads and whether
    NATS is there or not. `tls` is for probes of pods.
    """

    def __init__(
        self,
        settings: EdsSettings,
        bus: Bus,
        source: Source,
        metrics: Metrics,
        leadership: Leadership,
        listeners: Sequence[OnSnapshot] = (),
        tls: ClientTls | None = None,
    ) -> None:
        self._bus = bus
        self._source = source
        self._metrics = metrics
        self._leadership = leadership
        self._listeners = listeners
        self._discovery = Discovery(settings.policy())
        self._hold_limit_ms = settings.hold_limit_ms
        self._heard_over_bus = settings.source is SourceKind.HEARTBEAT
        self._prober = Prober(
            self._on_gone,
            token=shown_token(settings.rpc_token.get_secret_value()),
            timeout=settings.probe_timeout_ms / 1000,
            tls=tls,
            on_sighting=metrics.probed,
        )
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._started = self._last_event = self._last_turn = self._loop.time()
        self._audience: tuple[int, float] | None = None
        self._leading: bool | None = None
        self._stands = False
        self._heard: dict[str, int] = {}
        metrics.watch(self.observe, dropped=lambda: bus.dropped)

    async def run(self) -> None:
        """Serve until cancelled; raise what the source or the election raises if it cannot start."""
        try:
            await self._source.start(self._on_event)
            while True:
                pause = self._turn()
                await self._stand()
                await self._rest(pause)
        finally:
            await self._source.close()
            await self._leadership.close()
            await self._prober.close()

    @property
    def turn_age(self) -> float:
        """Seconds since the last turn of the service; it takes ten a second."""
        return self._loop.time() - self._last_turn

    def view(self) -> ReplicaView:
        """Say what this replica knows, publishes and holds back."""
        limit = self._hold_limit_ms / 1000
        models = (
            ModelView(
                snapshot=snapshot,
                held=tuple(
                    HeldView(id=held.endpoint.id, seconds=held.seconds, limit_seconds=limit)
                    for held in self._discovery.held(snapshot.model)
                ),
            )
            for snapshot in self._discovery.current(time.time(), self._leadership.epoch)
        )
        return self.observe(models=tuple(models))

    def observe(self, models: tuple[ModelView, ...] = ()) -> ReplicaView:
        """Say how this replica stands, with no more of the models than is given."""
        now = self._loop.time()
        return ReplicaView(
            settled=self._discovery.settled,
            stale=self._discovery.stale,
            leader=self._leadership.is_leader(now),
            epoch=self._leadership.epoch,
            bus_connected=self._bus.connected,
            event_age_s=now - self._last_event,
            models=models,
        )

    async def _stand(self) -> None:
        """Stand for election once it is known who is there: who knows nobody would keep out those who do."""
        if self._discovery.settled and not self._stands:
            self._stands = True
            await self._leadership.start(self._wake.set)

    async def _rest(self, pause: float) -> None:
        try:
            async with asyncio.timeout(pause):
                await self._wake.wait()
        except TimeoutError:
            return
        self._wake.clear()

    def _turn(self) -> float:
        """Bring everything up to now; return for how many seconds nothing is to be done, unless woken."""
        self._last_turn = now = self._loop.time()
        self._discovery.apply(Elapsed(now, self._bus.connected_since if self._heard_over_bus else self._started))
        for verdict in self._discovery.review(now):
            tell(verdict, hold_limit_ms=self._hold_limit_ms)
            self._metrics.reviewed(verdict)
        self._prober.watch(self._discovery.suspects())
        self._publish(now)
        return max(0.0, min(TICK_S, self._discovery.due_at() - now))

    def _publish(self, now: float) -> None:
        epoch = self._meet_audience(now)
        for snapshot in self._discovery.collect(now, time.time(), epoch or self._leadership.epoch):
            if epoch is not None:
                self._bus.publish(endpoints_subject(snapshot.model), snapshot)
                self._metrics.published(snapshot.model)
            if self._heard.get(snapshot.model) != snapshot.generation:
                self._heard[snapshot.model] = snapshot.generation
                self._tell_listeners(snapshot)

    def _tell_listeners(self, snapshot: EndpointsSnapshot) -> None:
        for listener in self._listeners:
            try:
                listener(snapshot)
            except Exception:  # one publisher's fault must not silence the others
                _log.exception("listener_failed", model=snapshot.model)

    def _meet_audience(self, now: float) -> int | None:
        """Return the epoch to publish under, None if this replica may or can not.

        With a new term, or a new connection, receivers are told everything at once: they may have heard nothing
        for a while.
        """
        leading = self._leadership.is_leader(now)
        epoch, since = self._leadership.epoch, self._bus.connected_since
        if leading is not self._leading:
            self._leading = leading
            _log.info("publisher" if leading else "standing_by", epoch=epoch)
        audience = (epoch, since) if leading and since is not None else None
        if audience is not None and audience != self._audience:
            self._discovery.renew()
        self._audience = audience
        return epoch if audience is not None else None

    def _on_event(self, event: Event) -> None:
        # That a source cannot be heard is not something that it has said.
        if not (isinstance(event, Listed) and event.stale):
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
