"""The gateway as a whole, without its HTTP face: discovery, the fleet, the way there, and what is told of them."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Iterator
from math import inf
from types import ModuleType

from copydesk.common.bus import Bus
from copydesk.common.messages import (
    EndpointsSnapshot,
    LoadReport,
    RolloutPlan,
    ScaleDecision,
    demand_subject,
    endpoints_subject,
    load_subject,
    rollout_report_subject,
    rollout_subject,
    scale_subject,
)
from copydesk.common.rpc.tokens import shown_token
from copydesk.common.task_gauge import HELP, METRIC, tasks_now
from copydesk.common.tls import ClientTls, Expiries
from copydesk.gateway.correction import Corrector
from copydesk.gateway.dispatch import Dispatcher
from copydesk.gateway.entrance import Entrance
from copydesk.gateway.fleet import Fleet
from copydesk.gateway.history import History
from copydesk.gateway.lane.express import ExpressLane
from copydesk.gateway.lane.storage import storage
from copydesk.gateway.lifecycle import Lifecycle
from copydesk.gateway.metrics import Family, Metrics
from copydesk.gateway.pod import Dialling
from copydesk.gateway.reporter import Reporter
from copydesk.gateway.rollout import Examples, Rollout
from copydesk.gateway.schemas import FleetBody
from copydesk.gateway.settings import GatewaySettings
from copydesk.gateway.tls import expiry_families
from copydesk.gateway.view import fleet_body, pod_states
from copydesk.gateway.weights import Weights
from copydesk.routing import RetryBudget

REPORT_SECONDS = 1.0
"""How often the last minutes grow by a point, and the autoscaler is told how much there is to do."""


class Gateway:
    """Everything that serves corrections; make it on the event loop that it runs on.

    `native` is the compiled module of the express lane; without it, Python carries all requests. Raises
    `TlsError`.
    """

    def __init__(self, settings: GatewaySettings, native: ModuleType | None = None) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.lifecycle = Lifecycle()
        shared = storage(native)
        places = shared.places()
        self._nats_tls, rpc_tls = settings.nats_tls(), settings.rpc_tls()
        self._expiries = Expiries([each.credentials for each in (rpc_tls, self._nats_tls) if each])
        self.metrics.include(lambda: expiry_families(self._expiries))
        self.fleet = Fleet(_dialling(settings, rpc_tls), settings.balancing, new_ledger=shared.ledger)
        self.dispatcher = Dispatcher(
            self.fleet,
            RetryBudget(ratio=settings.retry_ratio, floor=settings.retry_floor),
            self.metrics,
            endpoint_wait=settings.endpoint_wait_ms / 1000,
            places=places,
        )
        self.entrance = Entrance(settings, self.dispatcher, self.metrics, new_cell=shared.cell)
        self.gatekeeper = self.entrance.gatekeeper
        self.weights = Weights(settings.model, settings.model_digest)
        self.metrics.include(lambda: self.weights.families(self.fleet.pods))
        self.metrics.include(self._discovery)
        self.metrics.include(self._tasks)
        self.lane = None if native is None else ExpressLane(native, self, places)
        self.corrector = Corrector(
            self.entrance.sentences,
            concurrency=settings.request_concurrency,
            max_characters=settings.max_sentence_characters,
        )
        self._loop = asyncio.get_running_loop()
        started_at, now = time.time(), self._loop.time()
        self.history = History(started_at=started_at, now=now)
        self.rollout = Rollout(
            self.dispatcher,
            self.corrector,
            self.entrance.sentences,
            lane=self.lane,
            gateway=settings.gateway_name,
            started_at=started_at,
            examples=Examples(settings.rollout_examples_file, settings.rollout_examples_limit),
        )
        self._subject = demand_subject(settings.model, settings.gateway_name)
        self._rollout_subject = rollout_report_subject(settings.model, settings.gateway_name)
        self._reporter = Reporter(
            self.dispatcher.demand,
            model=settings.model,
            gateway=settings.gateway_name,
            started_at=started_at,
            now=time.monotonic(),
        )
        self._recording: asyncio.TimerHandle | None = None
        self._greeting: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._bus: Bus | None = None

    async def start(self) -> None:
        """Begin to listen to discovery; returns at once, whether or not NATS is there."""
        self.entrance.start()
        token = self.settings.nats_token.get_secret_value() or None
        self._looking = self._loop.create_task(self._expiries.run(), name="certificates")
        self._bus = await Bus.connect(self.settings.nats_url, name="gateway", token=token, tls=self._nats_tls)
        await self._bus.subscribe(endpoints_subject(self.settings.model), EndpointsSnapshot, self.fleet.apply)
        await self._bus.subscribe(load_subject(self.settings.model, "*"), LoadReport, self._hear_load)
        await self._bus.subscribe(scale_subject(self.settings.model), ScaleDecision, self._hear)
        await self._bus.subscribe(rollout_subject(self.settings.model), RolloutPlan, self.rollout.hear)
        self._record()
        self._greeting = self._loop.create_task(self._greet(self._bus), name="greeting")

    async def close(self) -> None:
        """Say good-bye to the autoscaler, disconnect from discovery and from every pod."""
        for pending in (self._recording, self._greeting, self._looking):
            if pending is not None:
                pending.cancel()
        if self._bus is not None:
            self._report(closing=True)
            await self._bus.close()
        await self.entrance.close()
        await self.fleet.close()
        if self.lane is not None:
            self.lane.close()

    def missing(self) -> str | None:
        """Say what keeps the gateway from serving; None when nothing does."""
        if self.lifecycle.stopping:
            return "stopping"
        missing = self.entrance.missing()
        if missing is not None or self.fleet.eligible:
            return missing
        cut_off = self._bus is not None and not self._bus.connected
        return (
            "no pod is ready, and NATS, which tells of pods, cannot be reached" if cut_off else "no pod is ready"
        )

    def fleet_view(self) -> FleetBody:
        """The fleet as `copydesk status` shows it."""
        self._settle()
        connected = self._bus is not None and self._bus.connected
        return fleet_body(self.dispatcher, discovery_connected=connected)

    def render_metrics(self) -> str:
        """All metrics in Prometheus' text format."""
        self._settle()
        return self.metrics.render(pod_states(self.fleet))

    def _discovery(self) -> Iterator[Family]:
        connected = self._bus is not None and self._bus.connected
        yield "bus_connected", "gauge", "Whether NATS is connected (1) or not (0).", [((), float(connected))]
        age = self.fleet.membership_age(self._loop.time())
        yield "membership_age_seconds", "gauge", "Time since discovery last said who is there.", [((), age)]

    def _tasks(self) -> Iterator[Family]:
        yield METRIC, "gauge", HELP, [((), float(tasks_now()))]

    def _settle(self) -> None:
        if self.lane is not None:
            self.lane.settle()

    def _hear_load(self, report: LoadReport) -> None:
        self.fleet.hear_report(report)
        self.weights.hear(report)

    def _hear(self, decision: ScaleDecision) -> None:
        self.history.hear(decision, self._loop.time())

    def _record(self) -> None:
        self._settle()
        in_flight = sum(pod.ledger.in_flight for pod in self.fleet.pods.values())
        self.history.record(self.metrics.work, in_flight, self._loop.time())
        self._report()
        self._report_rollout()
        self._recording = self._loop.call_later(REPORT_SECONDS, self._record)

    async def _greet(self, bus: Bus) -> None:
        """Report as soon as there is anybody to report to: an idle gateway has no demand, and says so."""
        await bus.wait_connected(inf)
        self._report()

    def _report(self, *, closing: bool = False) -> None:
        # Not the event loop's time, which may stand still for a turn: the lane reads the clock.
        report = self._reporter.report(time.monotonic(), time.time(), closing=closing)
        if self._bus is not None:
            self._bus.publish(self._subject, report)

    def _report_rollout(self) -> None:
        self.rollout.look()
        report = self.rollout.report(time.time())
        if report is not None and self._bus is not None:
            self._bus.publish(self._rollout_subject, report)


def _dialling(settings: GatewaySettings, tls: ClientTls | None) -> Dialling:
    return Dialling(
        name=f"gateway-{os.getpid()}",
        model=settings.model,
        token=shown_token(settings.rpc_token.get_secret_value()),
        random=random.random,
        connect_timeout=settings.connect_timeout_ms / 1000,
        keepalive=settings.keepalive_ms / 1000,
        keepalive_timeout=settings.keepalive_timeout_ms / 1000,
        tls=tls,
    )
