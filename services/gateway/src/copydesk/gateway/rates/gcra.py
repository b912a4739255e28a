"""The generic cell rate algorithm: a limit on a rate whose whole state is one moment.

ITU-T I.371 (and the ATM Forum's Traffic Management 4.0) describe it as virtual scheduling: each request that
passes moves the theoretical arrival time of the next one by one interval, and a request passes unless that time is
further ahead than the burst allows. In any stretch of time no more than `burst` plus one an interval pass.

All times are whole microseconds, so that this and the script that Redis runs agree bit by bit: Lua's only numbers
are doubles, which hold microseconds since 1970 exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

MICROSECONDS = 1_000_000


@dataclass(frozen=True, slots=True)
class Rate:
    """One request an `interval`, in microseconds, on average; `burst` of them at once."""

    interval: int
    burst: int

    @classmethod
    def of(cls, per_second: float, burst: int | None = None) -> Rate:
        """Return the rate for so many a second, never more than that; without `burst`, one second's worth at
        once."""
        most = max(1, math.floor(per_second)) if burst is None else burst
        return cls(math.ceil(MICROSECONDS / per_second), most)


class Ruling(NamedTuple):
    """`due` is the state to keep; `wait` is how long until a request would pass, 0 if this one does."""

    due: int
    wait: int


def rule(due: int, now: int, rate: Rate) -> Ruling:
    """Decide about one request; `due` is the state that the last ruling left, 0 at first.

    Honest time cannot leave a state more than a whole window ahead. Where one is, the clock was set back or the
    limit was changed, and it is cut to that, so that nobody is locked out until the clock catches up.
    """
    interval = rate.interval
    window = interval * rate.burst
    start = min(max(due, now), now + window)
    wait = start + interval - window - now
    return Ruling(start, wait) if wait > 0 else Ruling(start + interval, 0)
