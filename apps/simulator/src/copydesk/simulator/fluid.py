"""A fleet as a fluid: one second at a time, from what flows in to what flows out, waits, or is refused.

A request takes a fraction of a second and a step is one, so that within a step each pod is where its curve says it
is at that rate. What comes beyond the highest rate waits, and waiting adds to latency. Gateways refuse what could
not be answered by its deadline, as `copydesk.routing.admission` does. A test holds this against a simulation of
the single requests (`copydesk.simulator.requests`).
"""

from __future__ import annotations

import math
from bisect import bisect_right
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
    """The work that is in the fleet; `step` moves it on by a second. `queue` is how many gateways let wait.

    Nothing is lost: what was at the pods, waited or came is served, refused, at the pods, or waits.
    """

    def __init__(self, profile: Profile, queue: float = math.inf) -> None:
        self._most, self._room = profile.most, queue
        self._full = float(profile.concurrencies[-1])
        self._waiting = 0.0
        self._held: float | None = None
        self._pods = 0.0
        # np.interp costs microseconds a call; tables that are searched cost a fraction of one.
        grid = np.linspace(0.0, profile.most, _GRID + 1)
        columns = [
            np.interp(grid, profile.rates, column)
            for column in (profile.concurrencies, profile.p50s, profile.p99s)
        ]
        self._table: list[tuple[float, float, float, float]] = list(
            zip(grid.tolist(), *(column.tolist() for column in columns), strict=True)
        )
        self._stocks: list[float] = (grid + columns[0]).tolist()
        self._longest_wait = max(0.0, profile.deadline_s - self._full / profile.most)

    def step(self, arrivals: float, pods: float) -> Flow:
        """Let a second pass in which so many requests came, and so many pods worked.

        At its end each pod holds what its curve says of the rate at which it answered. Pods that leave answer
        what they have. What comes beyond what the others answer and hold waits, or is refused.
        """
        if pods <= 0.0:
            return self._stand_still(arrivals)
        most = pods * self._most
        before = self._before(arrivals, pods) if self._held is None else self._held
        leaving = before * max(0.0, 1.0 - pods / self._pods) if self._pods > 0.0 else 0.0
        offered = arrivals + self._waiting + before - leaving
        rate, concurrency, p50, p99 = self._at(offered / pods)
        held = pods * concurrency
        served = pods * rate + leaving
        waiting = max(0.0, offered - pods * rate - held) if rate >= self._most else 0.0
        shed = max(0.0, waiting - min(self._room, most * self._longest_wait))
        waiting -= shed
        wait = 500.0 * (self._waiting + waiting) / most
        self._waiting, self._held, self._pods = waiting, held, pods
        service_s = concurrency / rate if rate > 0.0 else 0.0
        return Flow(served, shed, held, waiting, service_s, p50 + wait, p99 + wait, wait)

    def _stand_still(self, arrivals: float) -> Flow:
        self._held, self._waiting, self._pods = 0.0, 0.0, 0.0
        return Flow(0.0, arrivals, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)

    def _before(self, arrivals: float, pods: float) -> float:
        """Return what the pods hold if it has been like this for long."""
        place = min(float(_GRID), arrivals / pods / self._most * _GRID)
        return pods * self._table[int(place)][1]

    def _at(self, stock: float) -> tuple[float, float, float, float]:
        """Return rate, concurrency and latencies of a pod that is to answer or hold so many."""
        right = bisect_right(self._stocks, stock)
        if right > _GRID:
            return self._table[_GRID]
        below, above = self._table[right - 1], self._table[right]
        part = (stock - self._stocks[right - 1]) / (self._stocks[right] - self._stocks[right - 1])
        return (
            below[0] + part * (above[0] - below[0]),
            below[1] + part * (above[1] - below[1]),
            below[2] + part * (above[2] - below[2]),
            below[3] + part * (above[3] - below[3]),
        )


_GRID = 4096
