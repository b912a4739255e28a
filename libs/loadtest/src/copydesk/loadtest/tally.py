"""What is certain of a run while it goes on: enough to end one that cannot come to anything."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from copydesk.loadtest.generator import Flight


class Watch(msgspec.Struct, frozen=True, kw_only=True):
    """What to count: requests due from `begin` to `end`, seconds from the start of a run.

    One has missed that is not answered well within `slo_s`, one is late that is sent `late_s` after it was due.
    """

    begin: float
    end: float
    slo_s: float
    late_s: float


class Tally(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Of the requests that were due so long ago that they are answered in time or have missed: how many did."""

    due: int = 0
    missed: int = 0
    late: int = 0

    @classmethod
    def sum(cls, tallies: Iterable[Tally]) -> Tally:
        """Add up the tallies of several processes."""
        parts = list(tallies)
        return cls(
            due=sum(part.due for part in parts),
            missed=sum(part.missed for part in parts),
            late=sum(part.late for part in parts),
        )


class Counter:
    """Counts `flights`, which another appends to; looks at each once, when its fate is known."""

    def __init__(self, flights: Sequence[Flight], start: float, watch: Watch) -> None:
        self._flights = flights
        self._start = start
        self._watch = watch
        self._next = 0
        self._tally = Tally()

    def count(self, now: float) -> Tally:
        """Return the tally at `now`, in seconds of the flights' clock."""
        watch, begun = self._watch, self._next
        known = min(now - watch.slo_s, self._start + watch.end)
        while self._next < len(self._flights) and self._flights[self._next].planned < known:
            self._next += 1
        fresh = [one for one in self._flights[begun : self._next] if one.planned >= self._start + watch.begin]
        self._tally = Tally(
            due=self._tally.due + len(fresh),
            missed=self._tally.missed + sum(not _answered(one, watch.slo_s) for one in fresh),
            late=self._tally.late + sum(not one.sent - one.planned < watch.late_s for one in fresh),
        )
        return self._tally


def _answered(flight: Flight, slo_s: float) -> bool:
    sample = flight.sample
    return sample is not None and sample.failure is None and sample.latency <= slo_s
