"""How much work there is for the fleet, and what becomes of it: what the autoscaler is told.

The unit is a request to a pod: a sentence to correct, or a text to write. It is what pods count as `running` and
`queued`. A client's request is as many of them as it has sentences; one that is asked for twice at once, or whose
answer is remembered, is none of its own.

Means over time are exact: how many there are is added up over time with each change, so that nothing is missed
that comes and goes between two looks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from copydesk.common.messages import LATENCY_BOUNDS_MS
from copydesk.gateway.faults import ApiError
from copydesk.gateway.metrics import Family, Histogram, Labels

LATENCY_BOUNDS = tuple(bound / 1000 for bound in LATENCY_BOUNDS_MS)


class Occupancy:
    """How many of something there are, and how long they have been there, added up, in seconds."""

    __slots__ = ("_seconds", "_since", "count")

    def __init__(self, now: float) -> None:
        self.count = 0
        self._seconds = 0.0
        self._since = now

    def enter(self, now: float) -> None:
        """One more."""
        self._seconds += self.count * (now - self._since)
        self._since = now
        self.count += 1

    def leave(self, now: float) -> None:
        """One less."""
        self._seconds += self.count * (now - self._since)
        self._since = now
        self.count -= 1

    def seconds(self, now: float) -> float:
        """Return the integral of `count` over time until now."""
        return self._seconds + self.count * (now - self._since)


@dataclass(frozen=True, slots=True)
class Spent:
    """The seconds that requests have spent at pods, and waiting for a place at one, added up."""

    at_pods: float
    queued: float


class Demand:
    """Counts the requests of one gateway since it began. Times are seconds of one monotonic clock, passed in.

    `at_pods` counts tries: a request that two pods have is work for both. `queued` are those that wait here, for
    room at the pods or for a pod at all. Of the totals each request is in one at most, by how it ended:
    `completed`, a pod answered; `shed`, the fleet could not take it in time; `failed`, it ended with an error that
    is neither that nor the client's. What a client gave up, or asked wrongly, is in none.

    `latency` has the seconds from arrival to answer of what was completed, `at_pods_s` the part of them at the
    pods that answered.
    """

    def __init__(self, now: float) -> None:
        self.at_pods = Occupancy(now)
        self.queued = Occupancy(now)
        self.latency = Histogram(LATENCY_BOUNDS)
        self.at_pods_s = 0.0
        self.failed = 0
        self.shed = 0
        self._others: list[Callable[[float], float]] = []

    @property
    def completed(self) -> int:
        """Requests that a pod answered."""
        return sum(self.latency.counts)

    def include(self, spent: Callable[[float], float]) -> None:
        """Count what others bring to pods: `spent(now)` are the seconds that it has been there, ended or not."""
        self._others.append(spent)

    def answered(self, latency: float, at_pod: float) -> None:
        """Count a request that a pod answered, by how long it took from its arrival, and at that pod."""
        self.latency.observe(latency)
        self.at_pods_s += at_pod

    def absorb(self, buckets: Sequence[int], seconds: float) -> None:
        """Add requests that were counted elsewhere, by `LATENCY_BOUNDS`, that went to pods as they arrived."""
        self.latency.absorb(buckets, seconds)
        self.at_pods_s += seconds

    def refused(self, error: ApiError) -> None:
        """Count a request that ended with an error."""
        if error.shed:
            self.shed += 1
        elif error.status >= 500:
            self.failed += 1

    def taken_along(self, error: ApiError, others: int) -> None:
        """Count the `others` of a client's request that are given up because one has ended with an error.

        What was shed for one was shed for all: a text of ten sentences that is refused is demand for ten. Those
        that were underway count in nothing else.
        """
        if error.shed:
            self.shed += others

    def spent(self, now: float) -> Spent:
        """Return how long requests have been where they are or were, all together."""
        others = sum(spent(now) for spent in self._others)
        return Spent(self.at_pods.seconds(now) + others, self.queued.seconds(now))

    def families(self, now: float) -> Iterator[Family]:
        """What there is to count, for the metrics."""
        spent = self.spent(now)
        endings = {"completed": self.completed, "failed": self.failed, "shed": self.shed}
        work: list[tuple[Labels, float]] = [((("ending", ending),), count) for ending, count in endings.items()]
        yield "work_total", "counter", "Requests to pods by how they ended.", work
        for name, text, seconds in (
            ("at_pods_seconds_total", "Time at pods, added up: its rate is how many are there.", spent.at_pods),
            ("queued_seconds_total", "Time waiting for a place at a pod: its rate is how many do.", spent.queued),
            ("answered_seconds_total", "Latency of requests to pods that were answered.", self.latency.total),
            ("answered_at_pods_seconds_total", "The part of that at the pods that answered.", self.at_pods_s),
        ):
            yield name, "counter", text, [((), seconds)]
