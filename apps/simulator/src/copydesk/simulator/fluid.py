"""A fleet as a fluid: one second at a time, from what flows in to what flows out, waits, or is refused.

A request takes a fraction of a second and a step is one, so that within a step each pod is where its curve says it
is at that rate. What comes beyond the highest rate waits, and waiting adds to latency. Gateways refuse what could
not be answered by its deadline, as `copydesk.routing.admission` does. A test holds this against a simulation of
the single requests (`copydesk.simulator.requests`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from copydesk.simulator.profile import Profile


@dataclass(frozen=True, slots=True)
class Flow:
    """One second: requests `served` and `shed`, how many were at pods and waiting, and their latency.

    `wait_ms` is the part of both latencies that was waiting. `service_s` is the mean time at a pod.
    """

    served: float
    shed: float
    in_flight: float
    queued: float
    service_s: float
    p50_ms: float
    p99_ms: float
    wait_ms: float


class Fluid:
    """The work that is in the fleet; `step` moves it on by a second. `queue` is how many gateways let wait."""

    def __init__(self, profile: Profile, queue: float = math.inf) -> None:
        self._profile = profile
        self._room = queue
        self._waiting = 0.0
        # np.interp costs microseconds a call; a table that is indexed costs a fraction of one.
        grid = np.linspace(0.0, profile.most, _GRID + 1)
        self._table: list[tuple[float, float, float]] = list(
            zip(
                *(
                    np.interp(grid, profile.rates, column).tolist()
                    for column in (profile.concurrencies, profile.p50s, profile.p99s)
                ),
                strict=True,
            )
        )
        full = profile.concurrencies[-1] / profile.most
        self._longest_wait = max(0.0, profile.deadline_s - full)

    def step(self, arrivals: float, pods: float) -> Flow:
        """Let a second pass in which so many requests came, and so many pods worked."""
        most = pods * self._profile.most
        offered = arrivals + self._waiting
        served = min(offered, most)
        waiting = offered - served
        room = min(self._room, most * self._longest_wait)
        shed = max(0.0, waiting - room)
        waiting -= shed
        wait = 0.5 * (self._waiting + waiting) / most if most > 0.0 else 0.0
        self._waiting = waiting
        concurrency, p50, p99 = self._at(served / pods if pods > 0.0 else 0.0)
        return Flow(
            served,
            shed,
            pods * concurrency,
            waiting,
            concurrency * pods / served if served > 0.0 else 0.0,
            p50 + 1000.0 * wait,
            p99 + 1000.0 * wait,
            1000.0 * wait,
        )

    def _at(self, rate: float) -> tuple[float, float, float]:
        place = rate / self._profile.most * _GRID
        left = min(_GRID - 1, int(place))
        part = place - left
        below, above = self._table[left], self._table[left + 1]
        return (
            below[0] + part * (above[0] - below[0]),
            below[1] + part * (above[1] - below[1]),
            below[2] + part * (above[2] - below[2]),
        )


_GRID = 4096
