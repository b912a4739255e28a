"""The running autoscaler: messages in, a decision for each model every two seconds, an order if this one leads.

Each model has a task of its own: one that has to wait for its actuator, or trips over a fault, holds up no other.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeVar

import msgspec

from copydesk.autoscaler.actuator import Actuator, ActuatorError, Leadership
from copydesk.autoscaler.clock import SteadyClock
from copydesk.autoscaler.dropped import Dropped
from copydesk.autoscaler.log_entry import DRY, Entry, message_of
from copydesk.autoscaler.memory import Memory
from copydesk.autoscaler.metrics import Metrics
from copydesk.autoscaler.observer import Observer
from copydesk.autoscaler.pilot import Pilot, Turn
from copydesk.autoscaler.weights import Weights
from copydesk.common.bus import Bus
from copydesk.common.messages import (
    DemandReport,
    EndpointsSnapshot,
    LoadReport,
    demand_subject,
    endpoints_subject,
    load_subject,
    scale_subject,
    shadow_subject,
)
from copydesk.common.telemetry import get_logger

CALL_SECONDS = 5.0
"""An actuator that takes longer is given up until the next turn."""
MOST_NAMED = 100
"""Gateways of which it is said that their name is there twice."""
REMEMBERED = 120
"""Decisions of a model that `/decisions` shows: four minutes of them, or two with a candidate."""

T = TypeVar("T", bound=msgspec.Struct)

_log = get_logger(__name__)


class Journal(Protocol):
    """Where decisions are written down: a file, or a list in a test."""

    dropped: int

    def write(self, entry: Entry) -> None:
        """Take a line; never raise, never block."""


@dataclass(slots=True)
class _Course:
    """How one model is doing: the last size known, the epoch under which an order was heard, the last turn."""

    size: int | None = None
    claimed: int | None = None
    trouble: str = ""
    turned_at: float = 0.0
    decided_at: float = 0.0
    entries: deque[Entry] = field(default_factory=lambda: deque(maxlen=REMEMBERED))


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds between decisions, and of listening before the first."""

    interval: float = 2.0
    settle: float = 3.0


class View(msgspec.Struct, frozen=True, kw_only=True):
    """How this autoscaler stands, and the last decisions of each model, the newest last."""

    ready: bool
    leader: bool
    epoch: int
    bus_connected: bool
    models: Mapping[str, tuple[Entry, ...]] = {}


class Service:
    """Scales the models of `pilots`, while `leadership` says that it may."""

    def __init__(
        self,
        pilots: Sequence[Pilot],
        bus: Bus,
        actuator: Actuator,
        leadership: Leadership,
        journal: Journal,
        metrics: Metrics,
        memory: Memory,
        *,
        pace: Pace | None = None,
        clock: SteadyClock | None = None,
    ) -> None:
        self._pilots = tuple(pilots)
        self._bus = bus
        self._actuator = actuator
        self._leadership = leadership
        self._journal = journal
        self._metrics = metrics
        self._memory = memory
        self._pace = pace or Pace()
        self._clock = clock or SteadyClock()
        self._courses = {pilot.plan.model: _Course() for pilot in pilots}
        self._weights = Weights(metrics)
        self._fenced = 0
        self._leading: int | None = None
        self._settled = False
        self._twice: set[str] = set()
        metrics.watch(
            leader=lambda: self._term() is not None,
            epoch=lambda: self._leadership.epoch,
            connected=lambda: bus.connected,
            unsent=lambda: bus.dropped,
            unlogged=lambda: journal.dropped,
        )

    async def run(self) -> None:
        """Serve until cancelled; raise `PlanError` if pods run other weights than their certificate is for."""
        self._begin()
        for pilot in self._pilots:
            await self._listen(pilot)
        try:
            await self._actuator.start()
            await self._leadership.start()
            await asyncio.sleep(self._pace.settle)
            for pilot in self._pilots:
                self._weights.require(pilot, self._clock.now())
            self._settled = True
            async with asyncio.TaskGroup() as tasks:
                for pilot in self._pilots:
                    tasks.create_task(self._steer(pilot), name=f"model {pilot.plan.model}")
        finally:
            await self._leadership.close()
            await self._actuator.close()
            if self._leading is not None:
                await self._memory.keep(self._pilots, self._clock.now())

    @property
    def turn_age(self) -> float:
        """Seconds since the model that has waited longest had its last turn."""
        now = time.monotonic()
        return max(now - course.turned_at for course in self._courses.values())

    def view(self, *, decisions: bool = True) -> View:
        """Say how this autoscaler stands."""
        return View(
            ready=self._settled,
            leader=self._term() is not None,
            epoch=self._leadership.epoch,
            bus_connected=self._bus.connected,
            models={model: tuple(course.entries) for model, course in self._courses.items()} if decisions else {},
        )

    def _begin(self) -> None:
        now = time.monotonic()
        for pilot in self._pilots:
            course = self._courses[pilot.plan.model]
            course.turned_at = course.decided_at = now
            age = partial(_age, course)
            self._metrics.watch_model(pilot.plan.model, age, assumed=pilot.plan.live.source.assumed)

    async def _listen(self, pilot: Pilot) -> None:
        model, observer = pilot.plan.model, pilot.observer
        hear = self._hear
        await self._bus.subscribe(demand_subject(model, "*"), DemandReport, partial(self._hear_demand, observer))
        await self._bus.subscribe(load_subject(model, "*"), LoadReport, partial(hear, "load", observer.on_load))
        await self._bus.subscribe(
            endpoints_subject(model), EndpointsSnapshot, partial(hear, "endpoints", observer.on_snapshot)
        )

    def _hear_demand(self, observer: Observer, report: DemandReport) -> None:
        dropped = observer.on_demand(report, self._clock.now())
        if dropped is None:
            return
        self._metrics.dropped("demand", dropped)
        if dropped is Dropped.TWICE and report.gateway not in self._twice and len(self._twice) < MOST_NAMED:
            self._twice.add(report.gateway)
            hint = "give each a COPYDESK_GATEWAY_NAME of its own, or none: the demand of one is not counted"
            _log.warning("gateway_name_twice", gateway=report.gateway, model=report.model, hint=hint)

    def _hear(self, kind: str, take: Callable[[T, float], Dropped | None], message: T) -> None:
        dropped = take(message, self._clock.now())
        if dropped is not None:
            self._metrics.dropped(kind, dropped)

    async def _steer(self, pilot: Pilot) -> None:
        loop = asyncio.get_running_loop()
        course = self._courses[pilot.plan.model]
        due = loop.time()
        while True:
            try:
                await self._turn(pilot, course)
            except (
                Exception
            ):  # a fault that one model's data brings out must not stop its scaling, nor the others'
                self._metrics.turn_failed(pilot.plan.model)
                _log.exception("turn_failed", model=pilot.plan.model)
            course.turned_at = time.monotonic()
            due = max(due + self._pace.interval, loop.time())
            await asyncio.sleep(due - loop.time())

    async def _turn(self, pilot: Pilot, course: _Course) -> None:
        model = pilot.plan.model
        known = await self._read_size(model, course)
        if course.size is None:
            return
        now, term = self._clock.now(), self._term()
        self._tell(term)
        await self._memory.recall(pilot, now)
        self._weights.look(pilot, now)
        turn = pilot.turn(course.size, now, term)
        if turn is None:
            return
        course.decided_at = time.monotonic()
        self._show(pilot, turn)
        if term is None or not known:
            return
        self._publish(pilot, turn)
        acted = await self._act(pilot, course, turn, term)
        self._note(course, msgspec.structs.replace(turn.live, acted=acted))
        if turn.shadow is not None:
            self._note(course, turn.shadow)
        await self._memory.keep_sometimes(pilot, now)

    def _term(self) -> int | None:
        """Return the epoch to act under, None while another one acts."""
        if not self._leadership.is_leader(time.monotonic()):
            return None
        epoch = self._leadership.epoch
        return epoch if epoch > self._fenced else None

    def _tell(self, term: int | None) -> None:
        if term != self._leading:
            _log.info("leading" if term is not None else "standing_by", epoch=self._leadership.epoch)
        self._leading = term

    async def _read_size(self, model: str, course: _Course) -> bool:
        """Read how many pods are asked for; say whether that is known now."""
        try:
            async with asyncio.timeout(CALL_SECONDS):
                course.size = await self._actuator.size(model)
        except (ActuatorError, TimeoutError) as error:
            self._complain(model, course, "size", error)
            return False
        if course.trouble:
            course.trouble = ""
            _log.info("actuator_back", model=model, size=course.size)
        return True

    async def _act(self, pilot: Pilot, course: _Course, turn: Turn, term: int) -> str:
        """Order what was decided; return what came of it, in words."""
        model, replicas = pilot.plan.model, turn.decision.replicas
        if pilot.name == DRY:
            return "nobody acts"
        if replicas == course.size and course.claimed == term:
            return "kept"
        try:
            async with asyncio.timeout(CALL_SECONDS):
                size = await self._actuator.resize(model, replicas, term)
        except (ActuatorError, TimeoutError) as error:
            if isinstance(error, ActuatorError) and error.fenced:
                self._fenced = max(self._fenced, term)
            self._complain(model, course, "resize", error)
            return f"failed: {_reason(error)}"
        course.claimed = term
        return "ordered" if size == replicas else f"left at {size}"

    def _complain(self, model: str, course: _Course, call: str, error: ActuatorError | TimeoutError) -> None:
        fenced = isinstance(error, ActuatorError) and error.fenced
        self._metrics.actuator_failed(model, call, fenced=fenced)
        reason = _reason(error)
        if course.trouble != reason:
            course.trouble = reason
            _log.warning("actuator_failed", model=model, call=call, reason=reason, fenced=fenced)

    def _show(self, pilot: Pilot, turn: Turn) -> None:
        model = pilot.plan.model
        for seconds in pilot.observer.pods.starts():
            self._metrics.started(model, seconds)
        self._metrics.decided(model, turn.live.policy, turn.decision)
        if turn.shadow is not None and turn.shadow_decision is not None:
            self._metrics.decided(model, turn.shadow.policy, turn.shadow_decision)

    def _publish(self, pilot: Pilot, turn: Turn) -> None:
        model = pilot.plan.model
        subject = shadow_subject(model) if pilot.name == DRY else scale_subject(model)
        self._bus.publish(subject, message_of(turn.live, time.time(), pilot.plan.image))
        if turn.shadow is not None:
            self._bus.publish(shadow_subject(model), message_of(turn.shadow, time.time()))
        if turn.decision.change:
            _log.info(
                "scale", model=model, size=turn.live.size, replicas=turn.live.replicas, reason=turn.live.reason
            )

    def _note(self, course: _Course, entry: Entry) -> None:
        course.entries.append(entry)
        self._journal.write(entry)


def _age(course: _Course) -> float:
    return time.monotonic() - course.decided_at


def _reason(error: ActuatorError | TimeoutError) -> str:
    return error.reason if isinstance(error, ActuatorError) else f"no answer within {CALL_SECONDS:g} s"
