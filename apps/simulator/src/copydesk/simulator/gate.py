"""The gate of one gateway in virtual time: who goes on, who waits, who is refused.

`copydesk.routing.admission` decides; this counts the places as the gateway's own gate does, ten times a second and
whenever one becomes free.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from copydesk.routing import AdmissionQueue, Pace, PaceMeter, allowance
from copydesk.simulator.gateway import ENOUGH, Gateway

T = TypeVar("T")

OVERCOMMIT = 1.25
SLOW = 0.95
FADE = 0.9
FADE_S = 1.0


class Gate(Generic[T]):
    """Lets as many through as the pods can run; a bounded number waits."""

    def __init__(self, gateway: Gateway, room: int) -> None:
        self.gateway = gateway
        self.queue: AdmissionQueue[T] = AdmissionQueue(room)
        self._meter = PaceMeter()
        self._pace = Pace()
        self._allowance = self._underway = self._ended = 0
        self._busy = False
        self._usual: float | None = None
        self._slow: float | None = None
        self._faded_at = 0.0

    def enter(self) -> bool:
        """Go through, if that is possible now."""
        if self._underway >= self._allowance:
            return False
        self._underway += 1
        return True

    def wait(self, request: T, deadline: float, now: float) -> bool:
        """Wait for a place; say whether that may be."""
        refused, _ = self.queue.offer(request, 0, deadline, pace=self._pace, now=now)
        return refused is None

    def leave(self) -> None:
        """Make room."""
        self._underway -= 1
        self._ended += 1

    def take(self, now: float) -> tuple[T, bool] | None:
        """Return who has waited longest and whether it may still be in time; None if nobody may go on."""
        if not (self.queue and self.enter()):
            self._busy &= bool(self.queue)
            return None
        taken = self.queue.take()
        assert taken is not None
        request, deadline = taken
        in_time = now + self._pace.service <= deadline
        self._underway -= not in_time
        return request, in_time

    def refresh(self, now: float) -> list[T]:
        """Look at the fleet anew; return those that wait in vain."""
        self.gateway.review(now)
        self._look()
        if now - self._faded_at >= FADE_S:
            self._faded_at = now
            self._usual, self._slow = self._latency(0.5, 1.0), self._latency(SLOW, ENOUGH)
            self.gateway.latencies.fade(FADE)
        self._pace = self._meter.read(
            self._ended, places=self._allowance, usual=self._usual, slow=self._slow, busy=self._busy, now=now
        )
        self._busy = bool(self.queue)
        return self.queue.hopeless(self._pace, now)

    def _look(self) -> None:
        used = [*self.gateway.near, *self.gateway.far]
        capacity = sum(one.ledger.capacity for one in used)
        others = sum(max(0, one.pod.held - one.ledger.in_flight) for one in used)
        self._allowance = allowance(capacity, len(used), others, overcommit=OVERCOMMIT)

    def _latency(self, share: float, least: float) -> float | None:
        found = self.gateway.latencies.quantile(share, least)
        return None if found is None else found / 1000.0
