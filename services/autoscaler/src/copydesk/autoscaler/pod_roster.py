"""The pods of one model: who is there, what they hold, and who was asked for and has not come yet.

Who is there is what discovery says; load reports tell what each pod runs and queues, as long as they are fresh.
Between an order and the moment in which discovery first sees the pod nobody speaks of it, so it is counted here:
such a pod is pending since it was asked for. That no pod is known is not the same as that there are none. Before
the first snapshot all that were asked for are taken to work, or demand would be read off an empty fleet.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field, replace
from statistics import median_low

from copydesk.autoscaler.dropped import Dropped
from copydesk.autoscaler.observation import Pod, PodState
from copydesk.common.messages import EndpointsSnapshot, EndpointState, LoadReport
from copydesk.routing import Held, Verdict, hear, judge

MOST_PODS = 10_000
FRESH_S = 3.0
SILENCE_S = 10.0
"""Discovery repeats itself every 2 s; after so long without a word it is taken to be away."""
LOOK_AGAIN_S = 1.0
"""Where there was no place for one more, none is looked for in that time."""
LARGEST = 1_000_000
LARGEST_TOTAL = 2**62

_STATES = {
    EndpointState.READY: PodState.READY,
    EndpointState.WARMING: PodState.PENDING,
    EndpointState.DRAINING: PodState.DRAINING,
}


@dataclass(frozen=True, slots=True)
class _Load:
    """The last load report of a pod, and when it came."""

    report: LoadReport
    at: float


@dataclass(slots=True)
class PodRoster:
    """The pods of one model, by what discovery, the pods and the actuator say."""

    _pods: dict[str, Pod] = field(default_factory=dict)
    _loads: dict[str, _Load] = field(default_factory=dict)
    _held: Held | None = None
    _heard_at: float = -math.inf
    _blind: bool = False
    _met: set[str] = field(default_factory=set)
    _orders: deque[float] = field(default_factory=deque)
    _asked: int | None = None
    _awaited: set[str] = field(default_factory=set)
    _starts: list[float] = field(default_factory=list)
    _full_until: float = -math.inf

    def take_snapshot(self, snapshot: EndpointsSnapshot, now: float) -> Dropped | None:
        """Take in what discovery says; say why it was dropped, if it was."""
        if len(snapshot.endpoints) > MOST_PODS:
            return Dropped.TOO_MANY
        if not (0 <= snapshot.epoch < LARGEST_TOTAL and 0 <= snapshot.generation < LARGEST_TOTAL):
            return Dropped.INVALID
        verdict = judge(self._held, snapshot.epoch, snapshot.generation, now)
        self._held = hear(self._held, snapshot.epoch, snapshot.generation, now)
        if verdict is Verdict.IGNORE:
            return Dropped.OLD
        self._heard_at, self._blind = now, snapshot.stale
        states = {endpoint.id: _STATES[endpoint.state] for endpoint in snapshot.endpoints}
        self._pods = {pod: self._seen(pod, state, now) for pod, state in states.items()}
        self._met &= self._pods.keys()
        self._awaited &= self._pods.keys()
        return None

    def starts(self) -> list[float]:
        """Return how many seconds pods took from their order to work, those that came since the last call."""
        found, self._starts = self._starts, []
        return found

    def take_load(self, report: LoadReport, now: float) -> Dropped | None:
        """Take in what a pod says of itself; say why it was dropped, if it was."""
        if not _makes_sense(report):
            return Dropped.INVALID
        known = self._loads.get(report.pod)
        if known is not None and _is_old(report, known, now):
            return Dropped.OLD
        if known is None and not self._has_room(now):
            return Dropped.TOO_MANY
        self._loads[report.pod] = _Load(report, now)
        return None

    def _has_room(self, now: float) -> bool:
        if len(self._loads) < MOST_PODS:
            return True
        if now < self._full_until:
            return False
        self._loads = {pod: load for pod, load in self._loads.items() if _is_fresh(load, now)}
        if len(self._loads) < MOST_PODS:
            return True
        self._full_until = now + LOOK_AGAIN_S
        return False

    def blind(self, now: float) -> bool:
        """Say whether discovery cannot be heard, or cannot see its source: then pods may come and go unseen."""
        return self._blind or now - self._heard_at > SILENCE_S

    @property
    def present(self) -> int | None:
        """How many pods there are that are not draining; None before discovery was heard."""
        if self._held is None:
            return None
        return sum(pod.state is not PodState.DRAINING for pod in self._pods.values())

    def slots(self, now: float) -> int | None:
        """Return how many requests a pod says that it runs side by side, None while none says so.

        The pods that discovery names are believed first: what others say may be of no pod at all.
        """
        fresh = [load.report for load in self._loads.values() if load.report.capacity > 0 and _is_fresh(load, now)]
        named = [report.capacity for report in fresh if report.pod in self._pods]
        said = named or [report.capacity for report in fresh]
        return median_low(said) if said else None

    def digests(self, now: float) -> frozenset[str]:
        """Return the digests of the weights that pods say they run."""
        fresh = (load.report.digest for load in self._loads.values() if _is_fresh(load, now))
        return frozenset(digest for digest in fresh if digest)

    def pods(self, size: int, cold_start_s: float, now: float) -> tuple[Pod, ...]:
        """Return all pods at `now`, where `size` are asked for; those that nobody sees yet are pending."""
        size = min(max(0, size), MOST_PODS)
        if self._held is None:
            return tuple(Pod(f"unknown-{number}", PodState.READY, now) for number in range(1, size + 1))
        self._receive()
        self._order(size, now)
        blind = self.blind(now)
        seen = (self._now(pod, cold_start_s, blind=blind, now=now) for pod in self._pods.values())
        unseen = (
            self._now(Pod(f"unseen-{number}", PodState.PENDING, since), cold_start_s, blind=blind, now=now)
            for number, since in enumerate(self._orders, 1)
        )
        return (*seen, *unseen)

    def _seen(self, pod: str, state: PodState, now: float) -> Pod:
        known = self._pods.get(pod)
        if known is not None and known.state is state:
            return known
        if known is not None and state is PodState.READY and pod in self._awaited:
            self._awaited.discard(pod)
            self._starts.append(now - known.since)
        return Pod(pod, state, now)

    def _receive(self) -> None:
        """Let pods that discovery has come to see be those that were asked for first."""
        for pod in self._pods.values():
            if pod.id in self._met or pod.state is PodState.DRAINING:
                continue
            self._met.add(pod.id)
            if not self._orders:
                continue
            since = self._orders.popleft()
            if pod.state is PodState.READY:
                self._starts.append(pod.since - since)
                continue
            self._awaited.add(pod.id)
            self._pods[pod.id] = replace(pod, since=min(since, pod.since))

    def _order(self, size: int, now: float) -> None:
        """Bring the orders up to `size`; what is taken back are the last ones."""
        for _ in range(min(len(self._orders), max(0, (self._asked or 0) - size))):
            self._orders.pop()
        self._asked = size
        unseen = max(0, size - (self.present or 0))
        while len(self._orders) > unseen:
            self._orders.popleft()
        self._orders.extend([now] * (unseen - len(self._orders)))

    def _now(self, pod: Pod, cold_start_s: float, *, blind: bool, now: float) -> Pod:
        """Add what is known now. While discovery is blind, nobody can tell that a pod does not come."""
        load = self._loads.get(pod.id)
        if load is not None and _is_fresh(load, now):
            pod = replace(pod, load=float(load.report.running + load.report.queued))
        if blind and pod.state is PodState.PENDING:
            pod = replace(pod, since=max(pod.since, now - cold_start_s))
        return pod


def _is_fresh(load: _Load, now: float) -> bool:
    return now - load.at <= FRESH_S


def _is_old(report: LoadReport, known: _Load, now: float) -> bool:
    if report.started_at == known.report.started_at:
        return report.sequence <= known.report.sequence
    return report.started_at < known.report.started_at and now - known.at <= SILENCE_S


def _makes_sense(report: LoadReport) -> bool:
    amounts = (report.running, report.queued, report.capacity)
    return (
        0 < len(report.pod) <= 256
        and len(report.digest) <= 256
        and all(0 <= amount <= LARGEST for amount in amounts)
        and 0 <= report.sequence < LARGEST_TOTAL
        and math.isfinite(report.started_at)
    )
