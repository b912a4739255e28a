"""Who may go on to the pods, who waits, and who is refused at once.

A fleet that takes all that comes answers nothing in time once more comes than it can do: work waits until its
deadline has passed, and is done in vain or dropped when it is paid for. So no more goes to the pods than they can
run, a bounded number waits, and what cannot be answered in time is told so while its client can still do something
about it. Compare "Handling Overload" in "Site Reliability Engineering" (2016), and Welsh and Culler, "Adaptive
Overload Control for Busy Internet Servers" (USITS 2003).
"""

from __future__ import annotations

import enum
import math
from collections import OrderedDict
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


class Refusal(enum.StrEnum):
    """Why something may not wait: no room, no chance to be in time, or its place went to more urgent work."""

    FULL = "queue_full"
    LATE = "deadline"
    DISPLACED = "displaced"


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a queue moves: requests that leave it a second, and the seconds that nearly all of them take then.

    Nearly all, not half of them: an answer that is late was work in vain. A rate of 0 is an unknown one, by which
    nobody is refused.
    """

    rate: float = 0.0
    service: float = 0.0

    def wait(self, ahead: int) -> float:
        """Return the seconds until one is answered that has so many ahead of it."""
        return (ahead + 1) / self.rate + self.service if self.rate > 0.0 else 0.0


def allowance(capacity: int, pods: int, others: int, *, overcommit: float) -> int:
    """Return how many requests a gateway may have at its pods.

    They run `capacity` at once in all; `overcommit` is how many times that they should have, so that none idles
    while an answer and the next request are on their way. `others` is what they have from other gateways. One
    request a pod is always allowed: otherwise a gateway that comes late to a full fleet would get nothing, ever.
    """
    return max(pods, int(overcommit * capacity) - others)


def retry_after(pace: Pace, waiting: int) -> float:
    """Return after how many seconds it is worth to try again: once those that wait now have had their turn."""
    return min(60.0, max(1.0, pace.wait(waiting)))


class PaceMeter:
    """Measures how fast a queue moves, from the count of those that left the pods.

    Only what was counted while requests waited says what the fleet can do; else it says what was asked of it.
    Without such a count that is recent, the rate is taken from Little's law: all places, each held as long as
    requests take.
    """

    __slots__ = ("_at", "_count", "_measured", "_measured_at", "_smoothing", "_valid")

    def __init__(self, *, smoothing: float = 0.3, valid: float = 10.0) -> None:
        self._smoothing = smoothing
        self._valid = valid
        self._count = 0
        self._at: float | None = None
        self._measured: float | None = None
        self._measured_at = -math.inf

    def read(
        self, ended: int, *, places: int, usual: float | None, slow: float | None, busy: bool, now: float
    ) -> Pace:
        """Return the pace at `now`.

        `ended` counts all that have ever left the pods, `places` is how many may be there, `usual` and `slow` are
        the median and a high quantile of the seconds there, if known; `busy` says whether some waited all the time
        since the last reading.
        """
        if self._at is not None and now > self._at:
            rate = (ended - self._count) / (now - self._at)
            if busy:
                fresh = self._measured is None or now - self._measured_at > self._valid
                before = rate if fresh or self._measured is None else self._measured
                self._measured = before + self._smoothing * (rate - before)
                self._measured_at = now
        self._count, self._at = ended, now
        service = slow or usual or 0.0
        if self._measured is not None and now - self._measured_at <= self._valid:
            return Pace(self._measured, service)
        return Pace(places / usual if usual else 0.0, service)


class AdmissionQueue(Generic[T]):
    """A bounded queue in which lower priority numbers go first, and within one who came first.

    Nothing in it has the fleet's time yet, so that leaving it costs nothing.
    """

    def __init__(self, limit: int, *, priorities: int = 2) -> None:
        self._limit = limit
        self._lines: tuple[OrderedDict[T, float], ...] = tuple(OrderedDict() for _ in range(priorities))
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def waiting(self, priority: int) -> int:
        """Return how many of that priority wait."""
        return len(self._lines[priority])

    def ahead(self, priority: int) -> int:
        """Return how many a newcomer of that priority has before it."""
        return sum(len(line) for line in self._lines[: priority + 1])

    def offer(
        self, entry: T, priority: int, deadline: float, *, pace: Pace, now: float
    ) -> tuple[Refusal | None, T | None]:
        """Take an entry in, or say why not; also return the entry that had to leave for it, if one had.

        An entry that would not be answered by its `deadline` at the present pace is refused. In a full queue the
        youngest of those with less priority than the newcomer makes room.
        """
        if now + pace.wait(self.ahead(priority)) > deadline:
            return Refusal.LATE, None
        displaced: T | None = None
        if len(self) >= self._limit:
            displaced = self._last_after(priority)
            if displaced is None:
                return Refusal.FULL, None
        self._lines[priority][entry] = deadline
        self._count += 1
        return None, displaced

    def take(self) -> tuple[T, float] | None:
        """Return who is next and its deadline, and forget it; None if nobody waits."""
        for line in self._lines:
            if line:
                self._count -= 1
                return line.popitem(last=False)
        return None

    def discard(self, entry: T) -> bool:
        """Forget an entry; say whether it waited."""
        for line in self._lines:
            if line.pop(entry, None) is not None:
                self._count -= 1
                return True
        return False

    def hopeless(self, pace: Pace, now: float) -> list[T]:
        """Forget and return those that can no longer be answered by their deadlines, as it looks now."""
        ahead = 0
        hopeless: list[T] = []
        for line in self._lines:
            late: list[T] = []
            for entry, deadline in line.items():
                if now + pace.wait(ahead) > deadline:
                    late.append(entry)
                else:
                    ahead += 1
            for entry in late:
                del line[entry]
            hopeless += late
        self._count -= len(hopeless)
        return hopeless

    def _last_after(self, priority: int) -> T | None:
        for line in reversed(self._lines[priority + 1 :]):
            if line:
                self._count -= 1
                return line.popitem()[0]
        return None
