"""The gate in front of the pods: who goes on, who waits, who is refused."""

from __future__ import annotations

import asyncio
from typing import Protocol

from copydesk.common.rpc import Priority
from copydesk.gateway import faults
from copydesk.gateway.faults import ApiError
from copydesk.gateway.fleet import Fleet
from copydesk.gateway.routing_metrics import RoutingMetrics
from copydesk.routing import AdmissionQueue, Pace, PaceMeter, Refusal, retry_after

PACE_SECONDS = 0.1
"""How often the pace is measured."""


class Entry(Protocol):
    """What waits at the gate."""

    def admitted(self) -> None:
        """It may go on now."""

    def refused(self, error: ApiError) -> None:
        """It may not go on at all."""


class PlaceCounts(Protocol):
    """The places at the pods: how many are taken, how many have ever been left, how many requests wait for one."""

    underway: int
    ended: int
    waiting: int


class Places:
    """Places that only this gate counts."""

    __slots__ = ("ended", "underway", "waiting")

    def __init__(self) -> None:
        self.underway = self.ended = self.waiting = 0


class Gate:
    """Lets as many through as the pods can run, and has a bounded number wait by priority.

    While there is no pod at all everybody passes: what then happens, and for how long one waits for a pod, is not
    the gate's to say. `places` are this gate's own unless others let requests through as well, by the same rule:
    they go on while there is room and nobody waits, and when one of them has left they call `let_in` if somebody
    does.
    """

    def __init__(self, fleet: Fleet, metrics: RoutingMetrics, places: PlaceCounts | None = None) -> None:
        self.queue: AdmissionQueue[Entry] = AdmissionQueue(fleet.balancing.queue, priorities=len(Priority))
        self.pace = Pace()
        self._fleet = fleet
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self.places: PlaceCounts = Places() if places is None else places
        self._meter = PaceMeter()
        self._measured_at = 0.0
        self._busy = False

    @property
    def underway(self) -> int:
        """How many went through and have not left."""
        return self.places.underway

    def enter(self) -> bool:
        """Go through, if that is possible now; whoever did must `leave`."""
        fleet, places = self._fleet, self.places
        if places.underway >= fleet.allowance and fleet.near:
            return False
        places.underway += 1
        return True

    def leave(self) -> None:
        """Make room for the next one."""
        places = self.places
        places.underway -= 1
        places.ended += 1
        if places.waiting:
            self.let_in()

    def wait(self, entry: Entry, priority: Priority, deadline: float, now: float) -> ApiError | None:
        """Have `entry` wait for its turn; return why it may not."""
        refusal, displaced = self.queue.offer(entry, priority, deadline, pace=self.pace, now=now)
        self.places.waiting = len(self.queue)
        if displaced is not None:
            displaced.refused(self._error(Refusal.DISPLACED))
        return None if refusal is None else self._error(refusal)

    def withdraw(self, entry: Entry) -> bool:
        """Have `entry` wait no longer; say whether it did."""
        waited = self.queue.discard(entry)
        self.places.waiting = len(self.queue)
        return waited

    def refresh(self, now: float) -> None:
        """Look at the fleet anew: there may be more room, or those who wait may wait in vain."""
        if now - self._measured_at >= PACE_SECONDS:
            self._measure(now)
            hopeless = self.queue.hopeless(self.pace, now)
            self.places.waiting = len(self.queue)
            for entry in hopeless:
                entry.refused(self._error(Refusal.LATE))
        self.let_in()

    def let_in(self) -> None:
        """Let those go on who wait, as far as there is room."""
        now = self._loop.time()
        while self.queue and self.enter():
            taken = self.queue.take()
            assert taken is not None
            self.places.waiting = len(self.queue)
            entry, deadline = taken
            if now + self.pace.service > deadline:
                self.places.underway -= 1
                entry.refused(self._error(Refusal.LATE))
            else:
                entry.admitted()
        if not self.queue:
            self._busy = False

    def _measure(self, now: float) -> None:
        self._measured_at = now
        fleet = self._fleet
        self.pace = self._meter.read(
            self.places.ended,
            places=fleet.allowance,
            usual=fleet.health.usual,
            slow=fleet.health.slow,
            busy=self._busy,
            now=now,
        )
        self._busy = bool(self.queue)

    def _error(self, refusal: Refusal) -> ApiError:
        self._metrics.shed(refusal.value)
        return faults.overloaded(round(1000 * retry_after(self.pace, len(self.queue))))
