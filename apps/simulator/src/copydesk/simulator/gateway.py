"""How one gateway chooses among pods: the very code of `copydesk.routing`, put together as in the gateway."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from copydesk.routing import (
    Conduct,
    Ending,
    Ledger,
    Member,
    Outliers,
    Quantiles,
    RetryBudget,
    Standing,
    Ticket,
    aperture,
    choose,
    choose_near,
    usable,
    warmth,
)

APERTURE = 32
SPILLOVER = 1.5
SLOW_START_S = 10.0
ENOUGH = 100.0


class Pod(Protocol):
    """A pod as it can be sent to: `slots` is how many requests it says that it runs at once."""

    @property
    def index(self) -> int:
        """Its number, which is its name."""

    @property
    def slots(self) -> int:
        """Its capacity."""

    @property
    def zone(self) -> str:
        """Where it is; empty for anywhere."""

    @property
    def alive(self) -> bool:
        """Whether it answers at all."""

    @property
    def held(self) -> int:
        """How many requests it has, running or not."""


@dataclass(slots=True, eq=False)
class Seen:
    """A pod as one gateway sees it."""

    pod: Pod
    id: str
    born: float
    ledger: Ledger = field(default_factory=Ledger)

    def standing(self, now: float) -> Standing:
        """How it stands."""
        return self.ledger.standing(now)

    def hear(self, held: int, now: float) -> None:
        """Take in how many requests it has."""
        running = min(held, self.pod.slots)
        self.ledger.hear(running, held - running, self.pod.slots, now)

    def conduct(self, now: float) -> Conduct:
        """The evidence on it."""
        ledger = self.ledger
        return Conduct(
            self.id, ledger.failures, ledger.mean_ms, ledger.samples, ledger.silent(now), ledger.answered_at
        )


class Gateway:
    """One gateway process: its aperture, its ledgers, its outliers, its budget.

    `near` and `far` are what it chooses from now, `seen` its aperture, `used` all pods it ever used, by number.
    """

    def __init__(self, number: int, zone: str = "") -> None:
        self.identity = f"gateway-{number}"
        self.zone = zone
        self.budget = RetryBudget()
        self.outliers = Outliers()
        self.latencies = Quantiles()
        self.seen: dict[str, Seen] = {}
        self.near: list[Seen] = []
        self.far: list[Seen] = []
        self.used: dict[int, Seen] = {}

    def engage(self, pods: Sequence[Pod], now: float) -> None:
        """Take over who is there; whoever is there at the beginning is warm."""
        by_id = {f"pod-{pod.index}": pod for pod in pods}
        members = [Member(name, pod.zone) for name, pod in by_id.items()]
        wanted = aperture(self.identity, self.zone, members, APERTURE)
        born = now if now > 0.0 else -SLOW_START_S
        self.seen = {name: self.seen.get(name) or self._meet(by_id[name], name, born) for name in wanted}
        self.used |= {one.pod.index: one for one in self.seen.values()}
        self._choose_from(now)

    def _meet(self, pod: Pod, name: str, born: float) -> Seen:
        seen = self.used.get(pod.index) or Seen(pod, name, born)
        seen.ledger.restart(pod.slots)
        return seen

    def pick(self, tried: tuple[int, ...], now: float, random: Callable[[], float]) -> int | None:
        """Choose as the gateway's fleet does."""
        if not tried:
            found = choose_near(self.near, self.far, spillover=SPILLOVER, now=now, random=random)
            return None if found is None else found.pod.index
        excluded = {f"pod-{index}" for index in tried}
        for pods in (self.far, self.near, list(self.seen.values())):
            found = choose(pods, now=now, random=random, excluded=excluded)
            if found is not None:
                return found.pod.index
        return None

    def answered(self, index: int, ticket: Ticket, held: int, now: float) -> None:
        """Take in an answer, which says how many its pod had left."""
        seen = self.used[index]
        seen.hear(held, now)
        ticket.finish(Ending.ANSWERED, now)
        self.latencies.observe((now - ticket.started_at) * 1000.0)

    def report(self, now: float) -> None:
        """Take in the load reports of the pods that no answer has told of lately."""
        for one in self.seen.values():
            if one.ledger.expects_news(now):
                one.hear(one.pod.held, now)

    def review(self, now: float) -> None:
        """Judge all pods as the gateway does ten times a second."""
        p99 = self.latencies.quantile(0.99, ENOUGH)
        verdicts = self.outliers.review([one.conduct(now) for one in self.seen.values()], p99, now)
        for name, _ in verdicts.ejected:
            self.seen[name].ledger.failures = self.seen[name].ledger.samples = 0
        self._choose_from(now)

    def _choose_from(self, now: float) -> None:
        for one in self.seen.values():
            one.ledger.weight = warmth(now - one.born, SLOW_START_S)
        names, _ = usable([name for name, one in self.seen.items() if one.pod.alive], self.outliers.ejected)
        chosen = [self.seen[name] for name in names]
        near = [one for one in chosen if one.pod.zone == self.zone]
        far = [one for one in chosen if one.pod.zone != self.zone]
        self.near, self.far = (near, far) if near else (far, near)
