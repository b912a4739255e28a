"""The clock against which a pod's silence is measured: it runs only while reports could have arrived.

A pod that is silent because NATS is away, or because this process was frozen, is not a pod that is gone. So the
clock stands still while the bus is disconnected and for a grace after it is back, in which the pods come back too,
and one long gap between two readings counts as a short one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from copydesk.common.bus import CONNECT_SECONDS, LONGEST_DELAY_SECONDS

LONGEST_RETURN = LONGEST_DELAY_SECONDS + CONNECT_SECONDS
"""Seconds after which a pod's own connection to NATS is back at the latest, once the server is."""

# Readings are about 0.1 s apart. A gap beyond this part of the time-out is a stall of this process, in which it
# could hear nobody.
LONGEST_STEP = 0.25


@dataclass(frozen=True, slots=True)
class SilenceClock:
    """`reading` in seconds, as of the monotonic time `at`; it stands still until `runs_from`."""

    reading: float = 0.0
    at: float = -math.inf
    runs_from: float = math.inf

    def advance(self, now: float, connected_since: float | None, timeout: float) -> SilenceClock:
        """Move to `now`, with the bus connected since then (None: it is not).

        `timeout`, in seconds, is the silence after which a pod counts as gone; the grace is at least as long.
        """
        grace = max(timeout, LONGEST_RETURN)
        runs_from = math.inf if connected_since is None else connected_since + grace
        step = min(LONGEST_STEP * timeout, max(0.0, now - max(self.at, runs_from)))
        return replace(self, reading=self.reading + step, at=max(self.at, now), runs_from=runs_from)
