"""The gateway as a whole, without its HTTP face: discovery, the fleet, the way there, and what is told of them."""

from __future__ import annotations

import os
import random
from collections import Counter

from copydesk.common.bus import Bus
from copydesk.common.messages import EndpointsSnapshot, endpoints_subject
from copydesk.gateway.correction import Corrector
from copydesk.gateway.dispatch import Dispatcher
from copydesk.gateway.fleet import Fleet
from copydesk.gateway.lifecycle import Lifecycle
from copydesk.gateway.metrics import Metrics
from copydesk.gateway.pod import Dialling
from copydesk.gateway.schemas import FleetBody
from copydesk.gateway.settings import GatewaySettings
from copydesk.gateway.view import fleet_body, pod_state
from copydesk.routing import RetryBudget


class Gateway:
    """Everything that serves corrections; make it on the event loop that it runs on."""

    def __init__(self, settings: GatewaySettings) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.lifecycle = Lifecycle()
        self.fleet = Fleet(_dialling(settings))
        budget = RetryBudget(ratio=settings.retry_ratio, floor=settings.retry_floor)
        wait = settings.endpoint_wait_ms / 1000
        self.dispatcher = Dispatcher(self.fleet, budget, self.metrics, endpoint_wait=wait)
        self.corrector = Corrector(
            self.dispatcher,
            concurrency=settings.request_concurrency,
            max_characters=settings.max_sentence_characters,
        )
        self._bus: Bus | None = None

    async def start(self) -> None:
        """Begin to listen to discovery; returns at once, whether or not NATS is there."""
        token = self.settings.nats_token.get_secret_value() or None
        self._bus = await Bus.connect(self.settings.nats_url, name="gateway", token=token)
        await self._bus.subscribe(endpoints_subject(self.settings.model), EndpointsSnapshot, self.fleet.apply)

    async def close(self) -> None:
        """Disconnect from discovery and from every pod."""
        if self._bus is not None:
            await self._bus.close()
        await self.fleet.close()

    def missing(self) -> str | None:
        """Say what keeps the gateway from serving; None when nothing does."""
        if self.lifecycle.stopping:
            return "stopping"
        return None if self.fleet.eligible else "no pod is ready"

    def fleet_view(self) -> FleetBody:
        """The fleet as `copydesk status` shows it."""
        connected = self._bus is not None and self._bus.connected
        return fleet_body(self.fleet, discovery_connected=connected, retries=self.metrics.retries)

    def render_metrics(self) -> str:
        """All metrics in Prometheus' text format."""
        states = Counter({"ready": 0, "warming": 0, "draining": 0, "disconnected": 0})
        states.update(pod_state(pod) for pod in self.fleet.pods.values())
        return self.metrics.render(states)


def _dialling(settings: GatewaySettings) -> Dialling:
    return Dialling(
        name=f"gateway-{os.getpid()}",
        model=settings.model,
        token=settings.rpc_token.get_secret_value(),
        random=random.random,
        connect_timeout=settings.connect_timeout_ms / 1000,
        keepalive=settings.keepalive_ms / 1000,
        keepalive_timeout=settings.keepalive_timeout_ms / 1000,
    )
