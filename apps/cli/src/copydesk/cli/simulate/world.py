"""The fleet itself: requests arrive, travel, wait, are served or not, and their answers travel back.

Nothing here balances; a rule is asked for each request. All rules see the same arrivals and the same requests: the
random numbers are drawn anew from the same seed.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Protocol

from copydesk.cli.simulate.scenario import Scenario

WIRE_SECONDS = 0.000_25
"""One way between gateway and pod."""

FAIL_SECONDS = 0.001
TICK_SECONDS = 0.1
REPORT_SECONDS = 0.25
COLD_REQUESTS = 100
COLD_FACTOR = 5.0
VARIATION = 0.3
"""The coefficient of variation of the service time, which is log-normal."""

_DRAWS = 1 << 14


@dataclass(slots=True, eq=False)
class Request:
    """One request. `token` is the rule's, `held` what its pod had left when it was done."""

    born: float
    gateway: int
    work: float
    pod: int = -1
    token: object = None
    tried: tuple[int, ...] = ()
    failed: bool = False
    held: int = 0


@dataclass(slots=True, eq=False)
class SimPod:
    """One pod; `factor` is how many times longer than usual it takes."""

    index: int
    slots: int
    zone: str = ""
    factor: float = 1.0
    failing: bool = False
    alive: bool = True
    cold: int = 0
    busy: int = 0
    held: int = 0
    requests: int = 0
    queue: deque[Request] = field(default_factory=deque)


class Rule(Protocol):
    """A way to balance, for all gateways: what each knows is the rule's to keep apart."""

    def pick(self, request: Request, now: float) -> int | None:
        """Choose a pod, by index, that is not among those `tried`."""

    def sent(self, request: Request, now: float) -> None:
        """A request leaves its gateway for its pod."""

    def ended(self, request: Request, now: float) -> bool:
        """An answer, or a failure, is back at its gateway; say whether the request is to be tried once more."""

    def report(self, now: float) -> None:
        """The load of each pod is told to all gateways."""

    def tick(self, now: float) -> None:
        """A tenth of a second has passed."""

    def changed(self, now: float) -> None:
        """Pods have come or gone."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a run: sorted latencies in seconds, and counts. `odd` are requests sent to odd pods."""

    latencies: list[float]
    failed: int
    requests: int
    odd: int
    longest_queue: int


class World:
    """One run of a scenario."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self.scenario = scenario
        self.random = random.Random(seed)
        self.pods = [self._pod(index) for index in range(scenario.pods)]
        self.now = 0.0
        self._outbound: deque[tuple[float, Request]] = deque()
        self._inbound: deque[tuple[float, Request]] = deque()
        self._done: list[tuple[float, int, Request]] = []
        self._sequence = 0
        self._latencies: list[float] = []
        self._failed = self._requests = self._odd = self._longest = 0
        self._turned = False

    def _pod(self, index: int) -> SimPod:
        scenario = self.scenario
        zone = f"zone-{index % scenario.zones}" if scenario.zones else ""
        slow = index < round(scenario.slow * scenario.pods)
        failing = scenario.pods - index <= scenario.failing
        factor = scenario.slow_factor if slow else 1.0
        return SimPod(index, scenario.slots, zone=zone, factor=factor, failing=failing)

    @property
    def alive(self) -> list[SimPod]:
        """The pods that can be sent to."""
        return [pod for pod in self.pods if pod.alive]

    def run(self, rule_of: Callable[[World], Rule]) -> Outcome:
        """Let the scenario happen under a rule."""
        arrivals = random.Random(self.random.random())
        works = _works(arrivals, self.scenario.service_ms / 1000.0)
        rule = rule_of(self)
        next_arrival, next_tick, next_report, count = 0.0, 0.0, 0.0, 0
        rate, end, gateways = self.scenario.rate, self.scenario.seconds, self.scenario.gateways
        while True:
            outbound = self._outbound[0][0] if self._outbound else math.inf
            inbound = self._inbound[0][0] if self._inbound else math.inf
            done = self._done[0][0] if self._done else math.inf
            now = self.now = min(next_arrival, outbound, inbound, done, next_tick)
            if now > end:
                return self._outcome()
            if now == next_arrival:
                count += 1
                next_arrival = now - math.log(1.0 - arrivals.random()) / rate
                self._send(Request(now, int(arrivals.random() * gateways), works[count % _DRAWS]), rule)
            elif now == outbound:
                self._arrive(self._outbound.popleft()[1])
            elif now == done:
                self._finish(heappop(self._done)[2])
            elif now == inbound:
                self._end(self._inbound.popleft()[1], rule)
            else:
                next_tick += TICK_SECONDS
                if now >= next_report:
                    next_report += REPORT_SECONDS
                    rule.report(now)
                self._turn(rule)
                rule.tick(now)

    def _send(self, request: Request, rule: Rule) -> None:
        index = rule.pick(request, self.now)
        if index is None:
            self._count(request, failed=True)
            return
        pod = self.pods[index]
        request.pod = index
        request.tried += (index,)
        request.failed = False
        pod.requests += 1
        if self.now > self.scenario.warm:
            self._requests += 1
            self._odd += pod.failing or pod.factor > 1.0
        rule.sent(request, self.now)
        self._outbound.append((self.now + WIRE_SECONDS, request))

    def _arrive(self, request: Request) -> None:
        pod = self.pods[request.pod]
        if not pod.alive:
            self._lose(request)
            return
        pod.held += 1
        if pod.failing:
            self._later(FAIL_SECONDS, request)
        elif pod.busy < pod.slots:
            self._serve(pod, request)
        else:
            pod.queue.append(request)
            if self.now > self.scenario.warm:
                self._longest = max(self._longest, len(pod.queue))

    def _serve(self, pod: SimPod, request: Request) -> None:
        pod.busy += 1
        factor = pod.factor
        if pod.cold:
            pod.cold -= 1
            factor *= COLD_FACTOR
        self._later(request.work * factor, request)

    def _later(self, seconds: float, request: Request) -> None:
        self._sequence += 1
        heappush(self._done, (self.now + seconds, self._sequence, request))

    def _finish(self, request: Request) -> None:
        pod = self.pods[request.pod]
        if not pod.alive:
            return
        pod.held -= 1
        request.held = pod.held
        if pod.failing:
            request.failed = True
        elif pod.queue:
            pod.busy -= 1
            self._serve(pod, pod.queue.popleft())
        else:
            pod.busy -= 1
        self._inbound.append((self.now + WIRE_SECONDS, request))

    def _lose(self, request: Request) -> None:
        request.failed = True
        self._inbound.append((self.now + WIRE_SECONDS, request))

    def _end(self, request: Request, rule: Rule) -> None:
        if rule.ended(request, self.now):
            self._send(request, rule)
        else:
            self._count(request, failed=request.failed)

    def _count(self, request: Request, *, failed: bool) -> None:
        if request.born <= self.scenario.warm:
            return
        if failed:
            self._failed += 1
        else:
            self._latencies.append(self.now - request.born)

    def _turn(self, rule: Rule) -> None:
        scenario = self.scenario
        if self._turned or self.now < scenario.turn:
            return
        self._turned = True
        for _ in range(scenario.joining):
            pod = SimPod(len(self.pods), scenario.slots, cold=COLD_REQUESTS)
            self.pods.append(pod)
        if scenario.zones:
            self._lose_zone("zone-0")
        if scenario.joining or scenario.zones:
            rule.changed(self.now)

    def _lose_zone(self, zone: str) -> None:
        for pod in self.pods:
            if pod.zone == zone:
                pod.alive = False
        for _, _, request in sorted(self._done):
            if not self.pods[request.pod].alive:
                self._lose(request)
        for pod in self.pods:
            if not pod.alive:
                for request in pod.queue:
                    self._lose(request)
                pod.queue.clear()

    def _outcome(self) -> Outcome:
        warm = self.scenario.warm
        waiting = [one for _, one in self._outbound] + [one for _, _, one in self._done]
        waiting += [one for pod in self.pods for one in pod.queue]
        # What is not answered by the end has taken at least so long: left out, the worst rules would look best.
        still = [self.now - one.born for one in waiting if self.pods[one.pod].alive and one.born > warm]
        late = [age for age in still if age > 2.0 * self.scenario.service_ms / 1000.0]
        return Outcome(sorted(self._latencies + late), self._failed, self._requests, self._odd, self._longest)


def _works(rng: random.Random, mean: float) -> list[float]:
    sigma = math.sqrt(math.log(1.0 + VARIATION**2))
    return [mean * rng.lognormvariate(-sigma * sigma / 2.0, sigma) for _ in range(_DRAWS)]
