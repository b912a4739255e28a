"""A short window request by request: gateways that choose, admit and refuse by their own code, pods as queues.

What takes a day as a fluid takes a day this way, too; so minutes are simulated, to see whether the fluid
(`copydesk.simulator.fluid`) tells the same. The wire is left out, a quarter of a millisecond.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from copydesk.routing import Ticket
from copydesk.simulator.curve_pod import Curve, CurvePod
from copydesk.simulator.gate import OVERCOMMIT, Gate
from copydesk.simulator.gateway import Gateway
from copydesk.simulator.profile import Profile
from copydesk.simulator.trace import Seconds

TICK_S = 0.1


@dataclass(slots=True, eq=False)
class Request:
    """One request, once it is at a pod."""

    born: float
    gateway: int
    ticket: Ticket | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Replay:
    """What happened, in each second: answers, refusals, mean requests at pods and waiting, latencies.

    `latencies_ms` are those of all answers, sorted.
    """

    served: Seconds
    shed: Seconds
    in_flight: Seconds
    queued: Seconds
    p99_ms: Seconds
    latencies_ms: Seconds


class Window:
    """One run: so many requests come in each second, pods `joins` (moments) after those that are there."""

    def __init__(
        self, arrivals: Seconds, profile: Profile, pods: int, joins: Sequence[float], gateways: int, room: int
    ) -> None:
        self._arrivals = arrivals
        self._deadline_s = profile.deadline_s
        self._curve = Curve.of(profile)
        # What gateways let go on is then just as much as the curve reaches.
        self._slots = max(1, round(profile.concurrencies[-1] / OVERCOMMIT))
        self._pods: list[CurvePod[Request]] = []
        self._joins = sorted([*(0.0 for _ in range(pods)), *joins], reverse=True)
        self._gates: list[Gate[Request]] = [Gate(Gateway(number), room) for number in range(gateways)]
        self._due: list[tuple[float, int, int]] = []
        self._latencies: list[list[float]] = [[] for _ in arrivals]
        self._shed = [0] * len(arrivals)
        self._levels: list[list[tuple[int, int]]] = [[] for _ in arrivals]

    def run(self, seed: int) -> Replay:
        """Let it happen."""
        rng, draws = random.Random(seed), np.random.default_rng(seed)
        for second, count in enumerate(self._arrivals.astype(np.int64).tolist()):
            moments = np.sort(draws.random(count)) + second
            self._second(second, moments.tolist(), draws.standard_normal(count).tolist(), rng)
        return self._replay()

    def _second(self, second: int, moments: list[float], normals: list[float], rng: random.Random) -> None:
        ticks = [second + TICK_S * tick for tick in range(round(1.0 / TICK_S))]
        self._normals = iter(normals)
        self._rng = rng
        events = sorted([*((at, True) for at in ticks), *((at, False) for at in moments)])
        for at, tick in events:
            self._finish(at)
            if tick:
                self._tick(at, second)
            else:
                self._come(Request(at, int(rng.random() * len(self._gates))), at)
        self._finish(second + 1.0)

    def _come(self, request: Request, now: float) -> None:
        gate = self._gates[request.gateway]
        if not gate.queue and gate.enter():
            self._send(request, now)
        elif not gate.wait(request, request.born + self._deadline_s, now):
            self._refuse(request)

    def _send(self, request: Request, now: float) -> None:
        gateway = self._gates[request.gateway].gateway
        index = gateway.pick((), now, self._rng.random)
        assert index is not None  # pods only join, and there is one from the beginning
        request.ticket = Ticket(gateway.used[index].ledger, now)
        pod = self._pods[index]
        self._expect(pod, pod.begin(request, next(self._normals, 0.0), now))

    def _finish(self, until: float) -> None:
        """Let pods answer what is due."""
        while self._due and self._due[0][0] <= until:
            at, version, index = heappop(self._due)
            pod = self._pods[index]
            if version != pod.version:
                continue
            request, following = pod.end(at)
            self._expect(pod, following)
            gate = self._gates[request.gateway]
            assert request.ticket is not None
            gate.gateway.answered(index, request.ticket, pod.held, at)
            gate.leave()
            self._latencies[min(int(at), len(self._latencies) - 1)].append(1000.0 * (at - request.born))
            self._let_in(gate, at)

    def _let_in(self, gate: Gate[Request], now: float) -> None:
        while (taken := gate.take(now)) is not None:
            request, in_time = taken
            if in_time:
                self._send(request, now)
            else:
                self._refuse(request)

    def _expect(self, pod: CurvePod[Request], at: float) -> None:
        if at < math.inf:
            heappush(self._due, (at, pod.version, pod.index))

    def _tick(self, now: float, second: int) -> None:
        joined = False
        while self._joins and self._joins[-1] <= now:
            self._joins.pop()
            self._pods.append(CurvePod(len(self._pods), self._slots, self._curve, _at=now))
            joined = True
        for gate in self._gates:
            if joined:
                gate.gateway.engage(self._pods, now)
            gate.gateway.report(now)
            for request in gate.refresh(now):
                self._refuse(request)
            self._let_in(gate, now)
        held = sum(pod.held for pod in self._pods)
        self._levels[second].append((held, sum(len(gate.queue) for gate in self._gates)))

    def _refuse(self, request: Request) -> None:
        self._shed[int(request.born)] += 1

    def _replay(self) -> Replay:
        levels = np.array([np.mean(levels, axis=0) for levels in self._levels])
        every = np.sort(np.concatenate([np.array(one, dtype=np.float64) for one in self._latencies]))
        return Replay(
            served=np.array([float(len(one)) for one in self._latencies]),
            shed=np.array(self._shed, dtype=np.float64),
            in_flight=levels[:, 0],
            queued=levels[:, 1],
            p99_ms=np.array([float(np.quantile(one, 0.99)) if one else 0.0 for one in self._latencies]),
            latencies_ms=every,
        )
