"""One sentence on its way for all who wait for it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from copydesk.common.rpc import Priority
from copydesk.common.telemetry import get_logger
from copydesk.common.tracing import tracing
from copydesk.gateway import faults
from copydesk.gateway.dispatch import Delivery, OnDone
from copydesk.gateway.faults import ApiError
from copydesk.gateway.submits import Handle

if TYPE_CHECKING:
    from copydesk.gateway.cache.sentences import SharedSentences

_log = get_logger(__name__)


class Waiter:
    """One who waits for a sentence; `cancel` gives it up."""

    __slots__ = ("_flight", "_on_done", "_timer", "deadline")

    def __init__(self, flight: Flight, deadline: float, on_done: OnDone) -> None:
        self.deadline = deadline
        self._flight = flight
        self._on_done = on_done
        self._timer: asyncio.TimerHandle | None = None

    def cancel(self) -> None:
        """Wait no longer; the sentence goes on if somebody else waits for it. Does nothing once it has ended."""
        self._stop()
        self._flight.leave(self)

    def expire_by(self, limit: float, loop: asyncio.AbstractEventLoop) -> None:
        """See to it that the deadline is kept, where it comes before `limit`, the flight's own."""
        if self.deadline < limit and self._timer is None:
            self._timer = loop.call_at(self.deadline, self._expire)

    def answer(self, outcome: Delivery | ApiError) -> None:
        """Pass on the end."""
        self._stop()
        try:
            self._on_done(outcome)
        except Exception:
            _log.exception("sentence_callback_failed")

    def _expire(self) -> None:
        self._flight.leave(self)
        self.answer(faults.deadline_exceeded())

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Flight:
    """The sentence is dispatched once, however many wait for it, and given up when the last of them has gone.

    It is a part of the trace of whoever was first, and runs until their deadline. Should that pass, it sets out
    again for those who have longer.
    """

    __slots__ = (
        "_dispatch",
        "_sentences",
        "_trace",
        "_waiters",
        "deadline",
        "digest",
        "key",
        "payload",
        "priority",
    )

    def __init__(
        self, sentences: SharedSentences, digest: str, payload: bytes, priority: Priority, key: str
    ) -> None:
        self.digest = digest
        self.payload = payload
        self.priority = priority
        self.key = key
        self.deadline = 0.0
        self._sentences = sentences
        self._waiters: dict[Waiter, None] = {}
        self._dispatch: Handle | None = None
        self._trace = tracing.here

    @property
    def wanted(self) -> bool:
        """Whether anybody waits."""
        return bool(self._waiters)

    def join(self, deadline: float, on_done: OnDone) -> Waiter:
        """Add one who waits; the first decides about the deadline."""
        waiter = Waiter(self, deadline, on_done)
        if not self._waiters:
            self.deadline = deadline
        elif deadline < self.deadline:
            waiter.expire_by(self.deadline, self._sentences.loop)
        self._waiters[waiter] = None
        return waiter

    def leave(self, waiter: Waiter) -> None:
        """Take one away who waits no longer."""
        if waiter not in self._waiters:
            return
        del self._waiters[waiter]
        if self._waiters:
            return
        self._sentences.forget(self)
        if self._dispatch is not None:
            self._dispatch.cancel()
            self._dispatch = None

    def depart(self) -> None:
        """Send the sentence to a pod."""
        if not self._trace:
            self._send()
            return
        with tracing.within(self._trace):
            self._send()

    def _send(self) -> None:
        self._dispatch = self._sentences.dispatcher.submit(
            self.payload, self.deadline, self._on_done, priority=self.priority
        )

    def land(self, outcome: Delivery | ApiError) -> None:
        """Tell everybody how it ended; one of them may cancel others, or submit the same sentence again."""
        self._sentences.forget(self)
        self._dispatch = None
        waiters = self._waiters
        while waiters:
            waiter = next(iter(waiters))
            del waiters[waiter]
            waiter.answer(outcome)

    def _on_done(self, outcome: Delivery | ApiError) -> None:
        if isinstance(outcome, Delivery):
            self._sentences.keep(self, outcome)
        elif outcome.code == "deadline_exceeded":
            self._dispatch = None
            self._drop_late(outcome)
            if self._waiters:
                self._depart_again()
                return
        self.land(outcome)

    def _drop_late(self, outcome: ApiError) -> None:
        limit = self.deadline
        for waiter in [waiter for waiter in self._waiters if waiter.deadline <= limit]:
            if waiter in self._waiters:
                del self._waiters[waiter]
                waiter.answer(outcome)

    def _depart_again(self) -> None:
        self.deadline = max(waiter.deadline for waiter in self._waiters)
        for waiter in self._waiters:
            waiter.expire_by(self.deadline, self._sentences.loop)
        self.depart()
