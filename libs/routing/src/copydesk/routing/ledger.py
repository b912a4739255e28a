"""What one gateway knows of one pod's work: the requests it sent there, the load it heard, the latency it saw."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from copydesk.routing.ewma import PeakEwma
from copydesk.routing.score import Standing

LOAD_VALID_SECONDS = 3.0
"""A load older than this counts as unknown: at 250 ms a report, a dozen have then gone missing."""

ERROR_FLOOR_MS = 1_000.0
ERROR_CEILING_MS = 30_000.0


class Ending(enum.Enum):
    """How a request ended, as far as the pod's reputation goes.

    `REFUSED` is back-pressure and `ABANDONED` our own decision: neither is the pod's failure.
    """

    ANSWERED = "answered"
    FAILED = "failed"
    REFUSED = "refused"
    ABANDONED = "abandoned"


@dataclass(frozen=True, slots=True)
class HeardLoad:
    """A pod's own word on its load, and when it came (in the caller's monotonic seconds)."""

    running: int
    queued: int
    capacity: int
    at: float


class Ticket:
    """One request in flight. Finishing it is the only way that the ledger's count goes down, and works once."""

    __slots__ = ("_ledger", "_open", "started_at")

    def __init__(self, ledger: Ledger, started_at: float) -> None:
        self._ledger = ledger
        self._open = True
        self.started_at = started_at

    def finish(self, ending: Ending, now: float) -> bool:
        """Close the ticket; a second call changes nothing and returns False."""
        if not self._open:
            return False
        self._open = False
        self._ledger._close(ending, (now - self.started_at) * 1000.0, now)
        return True


class Ledger:
    """The account of one pod. Times are monotonic seconds, passed in by the caller."""

    def __init__(self, *, tau: float = 10.0, load_valid: float = LOAD_VALID_SECONDS) -> None:
        self.in_flight = 0
        self.requests = 0
        self.errors = 0
        self.load: HeardLoad | None = None
        self._sent_since_load = 0
        self._capacity = 1
        self._load_valid = load_valid
        self._latency = PeakEwma(tau=tau)

    def start(self, now: float) -> Ticket:
        """Count a request as sent, and return the ticket that ends it."""
        self.in_flight += 1
        self.requests += 1
        self._sent_since_load += 1
        return Ticket(self, now)

    def hear(self, load: HeardLoad) -> None:
        """Take in the load that a pod reported; what was sent before it is part of it."""
        self.load = load
        self._capacity = max(1, load.capacity)
        self._sent_since_load = 0

    def restart(self, capacity: int) -> None:
        """A fresh connection to a pod that runs `capacity` requests at once: what was heard before is void."""
        self.load = None
        self._capacity = max(1, capacity)
        self._sent_since_load = 0

    @property
    def capacity(self) -> int:
        """How many requests the pod runs at once, as last heard; 1 until then."""
        return self._capacity

    def latency_ms(self, now: float) -> float | None:
        """Return the peak-EWMA of latency in milliseconds, failures charged to it; None before the first."""
        return self._latency.value(now)

    def standing(self, now: float) -> Standing:
        """Return what the balancer compares."""
        return Standing(self._outstanding(now), self._capacity, self._latency.value(now))

    def _outstanding(self, now: float) -> int:
        load = self.load
        if load is None or now - load.at > self._load_valid:
            return self.in_flight
        # A load leaves out what is still on the wire, so it is never less than our own unanswered requests.
        return max(load.running + load.queued + self._sent_since_load, self.in_flight)

    def _close(self, ending: Ending, elapsed_ms: float, now: float) -> None:
        self.in_flight -= 1
        if ending is Ending.FAILED:
            self.errors += 1
            self._latency.observe(self._failure_cost(elapsed_ms, now), now)
        elif ending is Ending.ANSWERED or self._abandoned_late(ending, elapsed_ms, now):
            self._latency.observe(elapsed_ms, now)

    def _failure_cost(self, elapsed_ms: float, now: float) -> float:
        """Price a failure: a pod that fails in 1 ms must not look fast, and each further failure doubles it."""
        current = self._latency.value(now) or 0.0
        return max(elapsed_ms, min(ERROR_CEILING_MS, max(ERROR_FLOOR_MS, 2.0 * current)))

    def _abandoned_late(self, ending: Ending, elapsed_ms: float, now: float) -> bool:
        """Whether an abandoned request says that the pod is slower than thought: it had not answered *yet*."""
        return ending is Ending.ABANDONED and elapsed_ms > (self._latency.value(now) or 0.0)
