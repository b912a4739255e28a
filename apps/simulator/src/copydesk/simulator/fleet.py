"""Pods in virtual time: ordered, starting, working, failing, removed."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush

from copydesk.autoscaler.observation import Pod, PodState
from copydesk.routing import warmth
from copydesk.simulator.gateway import SLOW_START_S


@dataclass(frozen=True, slots=True)
class Luck:
    """What befalls pods. Cold starts are log-normal, by median and nine-in-ten; a part `fail_starts` never ends.

    A pod that runs dies after `mean_life_h` hours on average, and is replaced by a new one at once. One whose
    start never ends is replaced after `give_up_s`, as Kubernetes does once a startup probe has failed for long
    enough.
    """

    cold_start_median_s: float = 35.0
    cold_start_p90_s: float = 60.0
    fail_starts: float = 0.01
    mean_life_h: float = 200.0
    give_up_s: float = 600.0
    seed: int = 1

    def draw(self, number: int) -> tuple[float, float]:
        """Return in how many seconds the pod with that number starts, and how long it lives after that.

        By its number, so that policies which order at different times are dealt the same cards.
        """
        rng = random.Random(self.seed * 1_000_003 + number)
        sigma = math.log(self.cold_start_p90_s / self.cold_start_median_s) / _Z90
        start = self.cold_start_median_s * math.exp(sigma * rng.gauss(0.0, 1.0))
        never = rng.random() < self.fail_starts
        return (math.inf if never else start), rng.expovariate(1.0) * self.mean_life_h * 3600.0

    @property
    def mean_cold_start_s(self) -> float:
        """The mean of the starts that end."""
        sigma = math.log(self.cold_start_p90_s / self.cold_start_median_s) / _Z90
        return self.cold_start_median_s * math.exp(0.5 * sigma * sigma)


_Z90 = 1.2815515655446004


@dataclass(slots=True)
class Fleet:
    """The pods of one run, under one policy. `size` is what was asked for last.

    `warming` says what part of its capacity a pod in slow start does, by percent of its weight.
    """

    luck: Luck
    warming: tuple[float, ...]
    size: int = 0
    pods: dict[int, Pod] = field(default_factory=dict)
    moves: int = 0
    _events: list[tuple[float, int, Callable[[int, float], None]]] = field(default_factory=list)
    _ready: int = 0
    _warming: list[int] = field(default_factory=list)
    _next: int = 0
    _seen: tuple[Pod, ...] | None = None

    @classmethod
    def warm(cls, luck: Luck, warming: tuple[float, ...], size: int) -> Fleet:
        """Return a fleet that has worked for long with so many pods."""
        fleet = cls(luck, warming, size)
        for _ in range(size):
            fleet._order(-math.inf)
        return fleet

    @property
    def ready(self) -> int:
        """The pods that work."""
        return self._ready

    @property
    def count(self) -> int:
        """The pods that are paid for."""
        return len(self.pods)

    def seen(self) -> tuple[Pod, ...]:
        """Return the pods as an observer sees them."""
        if self._seen is None:
            self._seen = tuple(self.pods.values())
        return self._seen

    def advance(self, now: float) -> None:
        """Let happen what is due by `now`."""
        while self._events and self._events[0][0] <= now:
            at, number, event = heappop(self._events)
            if number in self.pods:
                event(number, at)

    def working(self, now: float) -> float:
        """Return how many pods' capacity can be used: gateways give new ones less at first."""
        if not self._warming:
            return float(self._ready)
        self._warming = [
            number
            for number in self._warming
            if (pod := self.pods.get(number)) is not None and now - pod.since < SLOW_START_S
        ]
        weights = (warmth(now - self.pods[number].since, SLOW_START_S) for number in self._warming)
        return max(0.0, self._ready - sum(1.0 - self.warming[int(100.0 * weight)] for weight in weights))

    def resize(self, size: int, now: float) -> None:
        """Ask for so many pods: order the rest, or remove some, those that do not work yet first."""
        if size == self.size:
            return
        self.moves += 1
        self.size = size
        while len(self.pods) < size:
            self._order(now)
        if len(self.pods) > size:
            order = sorted(self.pods.values(), key=lambda pod: (pod.state is PodState.READY, -int(pod.id)))
            for pod in order[: len(self.pods) - size]:
                self._remove(int(pod.id))

    def _order(self, now: float) -> None:
        number = self._next
        self._next += 1
        self._seen = None
        start, life = self.luck.draw(number)
        if now == -math.inf:
            self.pods[number] = Pod(str(number), PodState.READY, now)
            self._ready += 1
            heappush(self._events, (life, number, self._replace))
            return
        self.pods[number] = Pod(str(number), PodState.PENDING, now)
        if math.isinf(start):
            heappush(self._events, (now + self.luck.give_up_s, number, self._replace))
        else:
            heappush(self._events, (now + start, number, self._begin))
            heappush(self._events, (now + start + life, number, self._replace))

    def _begin(self, number: int, now: float) -> None:
        self.pods[number] = Pod(str(number), PodState.READY, now)
        self._ready += 1
        self._warming.append(number)
        self._seen = None

    def _replace(self, number: int, now: float) -> None:
        self._remove(number)
        self._order(now)

    def _remove(self, number: int) -> None:
        self._ready -= self.pods.pop(number).state is PodState.READY
        self._seen = None
