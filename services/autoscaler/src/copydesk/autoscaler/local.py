"""Scaling of a local fleet: its supervisor acts on decisions as they are published, and says what it runs.

So nothing is written here but what the service publishes anyway: `resize` only makes sure that somebody listens.
Who leads is settled on the same subject. The newest autoscaler leads: it begins under its start as epoch, and who
hears decisions of a larger epoch than its own stands by. Supervisors refuse the smaller epoch in any case.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from copydesk.autoscaler.actuator import ActuatorError
from copydesk.autoscaler.log_entry import LIVE
from copydesk.common.bus import Bus, Subscription
from copydesk.common.messages import ReplicaStatus, ScaleDecision, replicas_subject, scale_subject
from copydesk.common.telemetry import get_logger

FRESH_S = 5.0
"""A supervisor speaks each second: five without a word are no slip."""
SILENCE_S = 10.0
"""Five decisions that were not heard: whoever led then is gone."""
LARGEST_SIZE = 1_000_000
LARGEST_EPOCH = 2**53

_log = get_logger(__name__)


class LocalActuator:
    """Reads sizes from the supervisor's word; `on_fenced` is called with a larger epoch that it heeds.

    Times are the monotonic ones of `clock`.
    """

    def __init__(
        self,
        bus: Bus,
        models: Iterable[str],
        on_fenced: Callable[[int], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bus = bus
        self._models = tuple(models)
        self._on_fenced = on_fenced
        self._clock = clock
        self._heard: dict[str, tuple[ReplicaStatus, float]] = {}
        self._subscriptions: list[Subscription[ReplicaStatus]] = []

    async def start(self) -> None:
        """Listen."""
        for model in self._models:
            subscription = await self._bus.subscribe(replicas_subject(model), ReplicaStatus, self.on_status)
            self._subscriptions.append(subscription)

    def on_status(self, status: ReplicaStatus) -> None:
        """Take in what a supervisor says, if it is about one of the models and makes sense.

        An epoch that no leader can have had must not fence: nobody could lead again under a larger one.
        """
        sound = 0 <= status.replicas <= LARGEST_SIZE and 0 <= status.epoch < LARGEST_EPOCH
        if status.model in self._models and sound:
            self._heard[status.model] = (status, self._clock())

    async def size(self, model: str) -> int:
        """Return the size that the supervisor works towards."""
        return self._status(model).replicas

    async def resize(self, model: str, replicas: int, epoch: int) -> int:
        """Make sure that what was published is heard; the supervisor says what came of it within a second."""
        if not self._bus.connected:
            raise ActuatorError(model, "NATS is away: nobody hears decisions")
        status = self._status(model)
        if status.epoch > epoch:
            self._on_fenced(status.epoch)
            raise ActuatorError(model, f"the supervisor heeds a newer leader (epoch {status.epoch})", fenced=True)
        return replicas

    async def close(self) -> None:
        """Listen no more."""
        for subscription in self._subscriptions:
            await subscription.unsubscribe()

    def _status(self, model: str) -> ReplicaStatus:
        status, at = self._heard.get(model, (None, 0.0))
        if status is None:
            raise ActuatorError(model, "no supervisor of a local fleet has been heard (copydesk up)")
        silent = self._clock() - at
        if silent > FRESH_S:
            raise ActuatorError(model, "the supervisor of the local fleet has fallen silent")
        return status


class LocalLeadership:
    """Leads until a newer one is heard, and again once that was silent for `SILENCE_S` on a live connection."""

    def __init__(
        self,
        bus: Bus,
        models: Iterable[str],
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._bus = bus
        self._models = tuple(models)
        self._clock = clock
        self._wall = wall
        self._epoch = 0
        self._stands = False
        self._rival: tuple[int, float] | None = None
        self._subscriptions: list[Subscription[ScaleDecision]] = []

    @property
    def epoch(self) -> int:
        """The epoch of the present or last term, 0 before the first."""
        return self._epoch

    def is_leader(self, now: float) -> bool:
        """Say whether this one leads at `now`; a term begins here, once nobody newer speaks."""
        if self._rival is None or not self._stands:
            return self._stands
        rival, heard_at = self._rival
        connected_since = self._bus.connected_since
        if connected_since is None or now - max(heard_at, connected_since) <= SILENCE_S:
            return False
        self._rival = None
        self._epoch = max(self._now_ms(), rival + 1)
        _log.info("term_begins", epoch=self._epoch, after=rival)
        return True

    def surpass(self, epoch: int) -> None:
        """Note that a supervisor heeds a larger epoch than one's own."""
        if self._epoch < epoch < LARGEST_EPOCH:
            if self._rival is None:
                _log.info("standing_by", epoch=self._epoch, newer=epoch)
            self._rival = (max(epoch, self._rival[0] if self._rival else 0), self._clock())

    async def start(self) -> None:
        """Stand for election, which is won by whoever stands last."""
        self._epoch, self._stands = self._now_ms(), True
        for model in self._models:
            subscription = await self._bus.subscribe(scale_subject(model), ScaleDecision, self.on_decision)
            self._subscriptions.append(subscription)

    def on_decision(self, decision: ScaleDecision) -> None:
        """Take in a decision, one's own among them: those say nothing new."""
        if decision.policy == LIVE and decision.model in self._models:
            self.surpass(decision.epoch)

    async def close(self) -> None:
        """Stand down."""
        self._stands = False
        for subscription in self._subscriptions:
            await subscription.unsubscribe()

    def _now_ms(self) -> int:
        return int(self._wall() * 1000)
