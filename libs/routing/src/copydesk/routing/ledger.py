"""What one gateway knows of one pod's work: the requests it sent there, the load it heard, the latency it saw."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from math import inf
from typing import Self

from copydesk.routing import ewma
from copydesk.routing.score import Standing

LOAD_VALID_SECONDS = 3.0
"""A load older than this counts as unknown: at 250 ms a report, a dozen have then gone missing."""

NEWS_SECONDS = 0.2
"""Reports come every 250 ms; one is of use if no answer has told the load since the one before."""

FULL = 2
"""How many times over a pod counts as full that has refused work: it gets more only if all others are fuller."""

MOST_HEARD = 1 << 30
"""What a pod says of itself is cut to between 0 and this: beyond are no numbers of requests, only mistakes, and a
ledger may be kept where no number is larger than 2**63."""

ERROR_FLOOR_MS = 1_000.0
ERROR_CEILING_MS = 30_000.0

_SMOOTHING = 0.1
"""The weight of one answer in the mean latency: about the last twenty count."""

_PLAIN = 1.0 / _SMOOTHING

_NONE_HERE: tuple[str, ...] = ()
"""The slots of rules whose storage a subclass brings. By a name: mypy takes a literal for all there will be."""

_LATE = 2.0
"""A deadline that passes says something of the pod if it was that many times the pod's mean latency away."""


class Ending(enum.Enum):
    """How a request ended, as far as the pod's reputation goes.

    `REFUSED` is back-pressure and `ABANDONED` our own decision: neither is the pod's failure. `EXPIRED` is a
    deadline that passed without an answer: the client's choice too, but enough of them in a row are not.
    """

    ANSWERED = "answered"
    FAILED = "failed"
    REFUSED = "refused"
    ABANDONED = "abandoned"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class HeardLoad:
    """A pod's own word on its load, and when it came (in the caller's monotonic seconds)."""

    running: int
    queued: int
    capacity: int
    at: float


class Ticket:
    """One request in flight, from when it is made.

    Finishing it is the only way that the ledger's count goes down, and works once. `timed` says whether how long
    it takes tells something of the pod; where an answer is as long as it likes, it does not.
    """

    __slots__ = ("_ledger", "_open", "started_at", "timed")

    def __init__(self, ledger: LedgerRules, now: float, *, timed: bool = True) -> None:
        self._ledger = ledger
        self._open = True
        self.started_at = now
        self.timed = timed
        ledger._start(now, timed)

    @classmethod
    def counted(cls, ledger: LedgerRules, started_at: float, *, timed: bool = True) -> Self:
        """Return a ticket for a request that the ledger has counted already, as of the same `timed`."""
        ticket = cls.__new__(cls)
        ticket._ledger = ledger
        ticket._open = True
        ticket.started_at = started_at
        ticket.timed = timed
        return ticket

    @property
    def open(self) -> bool:
        """Whether it is not finished yet."""
        return self._open

    def finish(self, ending: Ending, now: float) -> bool:
        """Close the ticket; a second call changes nothing and returns False."""
        if not self._open:
            return False
        self._open = False
        self._ledger._close(ending, self.started_at, now, self.timed)
        return True


class LedgerRules:
    """The account of one pod. Times are monotonic seconds, passed in by the caller.

    `failures` counts those in a row, and `samples` the answers in `mean_ms`, the plain mean of recent latencies;
    `answered_at` is when the pod last answered anything. `weight` is what part of a whole pod it counts.

    These are the rules alone. The fields are plain numbers, and a subclass says where they are kept: `Ledger` in
    slots, another one in memory that is not Python's. Whatever it is, it calls `reset` when it is made.
    """

    __slots__ = _NONE_HERE

    in_flight: int
    requests: int
    errors: int
    failures: int
    samples: int
    mean_ms: float
    answered_at: float
    weight: float
    _awaited: int
    _capacity: int
    _full_until: float
    _heard: int
    _heard_at: float
    _latency_at: float
    _latency_ms: float
    _load_valid: float
    _queued: int
    _sent_since_load: int
    _tau: float
    _waiting_since: float

    def reset(self, *, tau: float = ewma.TAU_SECONDS, load_valid: float = LOAD_VALID_SECONDS) -> None:
        """Begin the account: nothing was sent, heard or seen yet.

        Good news of latency is believed with the time constant `tau`, a load for `load_valid` seconds.
        """
        if tau <= 0:
            raise ValueError(f"tau must be above 0 seconds, not {tau}")
        self.in_flight = self.requests = self.errors = self.failures = self.samples = 0
        self.mean_ms = 0.0
        self.answered_at = -inf
        self.weight = 1.0
        self._heard = self._queued = self._sent_since_load = 0
        self._heard_at = -inf
        self._capacity = 1
        self._load_valid = load_valid
        self._latency_ms, self._latency_at = ewma.NOTHING
        self._tau = tau
        self._awaited = 0
        self._full_until = -inf
        self._waiting_since = 0.0

    def hear(self, running: int, queued: int, capacity: int, now: float) -> None:
        """Take in the load that a pod told; what was sent before it is part of it."""
        if not 0 <= running | queued | capacity < MOST_HEARD:
            running, queued, capacity = _possible(running), _possible(queued), _possible(capacity)
        self._heard = running + queued
        self._queued = queued
        self._capacity = capacity if capacity > 1 else 1
        self._heard_at = now
        self._sent_since_load = 0

    def restart(self, capacity: int) -> None:
        """A fresh connection to a pod that runs `capacity` requests at once: what was heard before is void."""
        self._heard_at = -inf
        self._capacity = max(1, _possible(capacity))
        self._sent_since_load = 0

    @property
    def load(self) -> HeardLoad | None:
        """The last load that the pod told since it was connected; None before the first."""
        if self._heard_at == -inf:
            return None
        return HeardLoad(self._heard - self._queued, self._queued, self._capacity, self._heard_at)

    @property
    def capacity(self) -> int:
        """How many requests the pod runs at once, as last heard; 1 until then."""
        return self._capacity

    def latency_ms(self, now: float) -> float | None:
        """Return the peak-EWMA of latency in milliseconds, failures charged to it; None before the first."""
        return ewma.value(self._latency_ms, self._latency_at, now, self._tau)

    def outstanding(self, now: float) -> int:
        """Return how many requests the pod has: what it told and what was sent since, or ours where that is more.

        A load leaves out what is still on the wire, so it is never less than our own unanswered requests.
        """
        own = self.in_flight
        if now - self._heard_at > self._load_valid:
            return own
        heard = self._heard + self._sent_since_load
        return heard if heard > own else own

    def standing(self, now: float) -> Standing:
        """Return what the balancer compares."""
        outstanding = self.outstanding(now)
        if now < self._full_until and outstanding < FULL * self._capacity:
            outstanding = FULL * self._capacity
        latency_ms = ewma.value(self._latency_ms, self._latency_at, now, self._tau)
        return (outstanding + 1) / (self._capacity * self.weight), latency_ms

    def silent(self, now: float) -> float:
        """Return for how many seconds the pod has had timed requests of ours and said nothing; 0 with none."""
        return now - self._waiting_since if self._awaited else 0.0

    def count_silence(self, now: float) -> None:
        """Take in how long the pod has been silent: what it was asked takes that long at least.

        Otherwise one that hangs keeps its good name, and with it all requests, for as long as the others have a
        worse one; and since they are asked nothing they answer nothing, which is what would give it away.
        """
        known, silent_ms = self.latency_ms(now), 1000.0 * self.silent(now)
        if known is not None and silent_ms > known:
            self._observe(silent_ms, now)

    def speak(self, now: float) -> None:
        """Note that the pod has said something about a request, be it only a part of an answer."""
        self.answered_at = self._waiting_since = now

    def refused(self, until: float) -> None:
        """The pod is full, whatever it tells of its load, and says when it is worth trying again."""
        self._full_until = until

    def expects_news(self, now: float) -> bool:
        """Whether no answer has told the load for a while, so that what others say of it is news."""
        return now - self._heard_at > NEWS_SECONDS

    def _start(self, now: float, timed: bool) -> None:
        self.in_flight += 1
        self.requests += 1
        self._sent_since_load += 1
        if timed:
            if not self._awaited:
                self._waiting_since = now
            self._awaited += 1

    def _close(self, ending: Ending, started_at: float, now: float, timed: bool) -> None:
        self.in_flight -= 1
        self._awaited -= timed
        elapsed_ms = (now - started_at) * 1000.0
        if ending is Ending.ANSWERED:
            self.speak(now)
            self.failures = 0
            if timed:
                self._sample(elapsed_ms, now)
        elif ending is Ending.FAILED:
            self.errors += 1
            self.failures += 1
            self._waiting_since = now
            self._observe(self._failure_cost(elapsed_ms, now), now)
        elif ending is Ending.REFUSED:
            self.speak(now)
        elif timed:
            self._give_up(ending, elapsed_ms, now)

    def _observe(self, elapsed_ms: float, now: float) -> None:
        self._latency_ms, self._latency_at = ewma.observe(
            self._latency_ms, self._latency_at, elapsed_ms, now, self._tau
        )

    def _sample(self, elapsed_ms: float, now: float) -> None:
        self._observe(elapsed_ms, now)
        self.samples += 1
        share = _SMOOTHING if self.samples > _PLAIN else 1.0 / self.samples
        self.mean_ms += share * (elapsed_ms - self.mean_ms)

    def _give_up(self, ending: Ending, elapsed_ms: float, now: float) -> None:
        """A request that got no answer may still say that the pod is slower than thought: it had none *yet*."""
        if elapsed_ms > (self.latency_ms(now) or 0.0):
            self._observe(elapsed_ms, now)
        if ending is Ending.EXPIRED and elapsed_ms > _LATE * self.mean_ms:
            self.failures += 1

    def _failure_cost(self, elapsed_ms: float, now: float) -> float:
        """Price a failure: a pod that fails in 1 ms must not look fast, and each further failure doubles it."""
        current = self.latency_ms(now) or 0.0
        return max(elapsed_ms, min(ERROR_CEILING_MS, max(ERROR_FLOOR_MS, 2.0 * current)))


class Ledger(LedgerRules):
    """An account that is kept in this object."""

    __slots__ = (
        "_awaited",
        "_capacity",
        "_full_until",
        "_heard",
        "_heard_at",
        "_latency_at",
        "_latency_ms",
        "_load_valid",
        "_queued",
        "_sent_since_load",
        "_tau",
        "_waiting_since",
        "answered_at",
        "errors",
        "failures",
        "in_flight",
        "mean_ms",
        "requests",
        "samples",
        "weight",
    )

    def __init__(self, *, tau: float = ewma.TAU_SECONDS, load_valid: float = LOAD_VALID_SECONDS) -> None:
        self.reset(tau=tau, load_valid=load_valid)


def _possible(number: int) -> int:
    return min(max(number, 0), MOST_HEARD)
