"""Copydesk's own rule: the very code of `copydesk.routing`, put together as the gateway puts it together."""

from __future__ import annotations

from dataclasses import dataclass, field

from copydesk.cli.simulate.world import Request, SimPod, World
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
SLOW_START_SECONDS = 10.0
ENOUGH = 100.0


@dataclass(slots=True, eq=False)
class Seen:
    """A pod as one gateway sees it."""

    pod: SimPod
    id: str
    born: float
    ledger: Ledger = field(default_factory=Ledger)

    def standing(self, now: float) -> Standing:
        """How it stands."""
        return self.ledger.standing(now)

    def conduct(self, now: float) -> Conduct:
        """The evidence on it."""
        ledger = self.ledger
        return Conduct(
            self.id, ledger.failures, ledger.mean_ms, ledger.samples, ledger.silent(now), ledger.answered_at
        )


class Gateway:
    """One gateway process: its aperture, its ledgers, its outliers, its budget."""

    def __init__(self, number: int, world: World) -> None:
        self.identity = f"gateway-{number}"
        self.zone = f"zone-{number % world.scenario.zones}" if world.scenario.zones else ""
        self.budget = RetryBudget()
        self.outliers = Outliers()
        self.latencies = Quantiles()
        self.seen: dict[str, Seen] = {}
        self.near: list[Seen] = []
        self.far: list[Seen] = []
        self.used: dict[int, Seen] = {}

    def engage(self, pods: list[SimPod], now: float) -> None:
        """Take over who is there."""
        by_id = {f"pod-{pod.index}": pod for pod in pods}
        members = [Member(name, pod.zone) for name, pod in by_id.items()]
        wanted = aperture(self.identity, self.zone, members, APERTURE)
        born = now if now > 0.0 else -SLOW_START_SECONDS
        self.seen = {name: self.seen.get(name) or self._meet(by_id[name], name, born) for name in wanted}
        self.used |= {one.pod.index: one for one in self.seen.values()}
        self._choose_from(now)

    def _meet(self, pod: SimPod, name: str, born: float) -> Seen:
        seen = self.used.get(pod.index) or Seen(pod, name, born)
        seen.ledger.restart(pod.slots)
        return seen

    def pick(self, tried: tuple[int, ...], now: float, world: World) -> int | None:
        """Choose as the gateway's fleet does."""
        rng = world.random.random
        if not tried:
            found = choose_near(self.near, self.far, spillover=SPILLOVER, now=now, random=rng)
            return None if found is None else found.pod.index
        excluded = {f"pod-{index}" for index in tried}
        for pods in (self.far, self.near, list(self.seen.values())):
            found = choose(pods, now=now, random=rng, excluded=excluded)
            if found is not None:
                return found.pod.index
        return None

    def review(self, now: float) -> None:
        """Judge all pods as the gateway does ten times a second."""
        p99 = self.latencies.quantile(0.99, ENOUGH)
        verdicts = self.outliers.review([one.conduct(now) for one in self.seen.values()], p99, now)
        for name, _ in verdicts.ejected:
            self.seen[name].ledger.failures = self.seen[name].ledger.samples = 0
        self._choose_from(now)

    def _choose_from(self, now: float) -> None:
        for one in self.seen.values():
            one.ledger.weight = warmth(now - one.born, SLOW_START_SECONDS)
        names, _ = usable([name for name, one in self.seen.items() if one.pod.alive], self.outliers.ejected)
        chosen = [self.seen[name] for name in names]
        near = [one for one in chosen if one.pod.zone == self.zone]
        far = [one for one in chosen if one.pod.zone != self.zone]
        self.near, self.far = (near, far) if near else (far, near)


class Copydesk:
    """All gateways."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._gateways = [Gateway(number, world) for number in range(world.scenario.gateways)]
        self.changed(0.0)

    def pick(self, request: Request, now: float) -> int | None:
        """As its gateway chooses."""
        gateway = self._gateways[request.gateway]
        if not request.tried:
            gateway.budget.request(now)
        return gateway.pick(request.tried, now, self._world)

    def sent(self, request: Request, now: float) -> None:
        """Open a ticket."""
        request.token = Ticket(self._gateways[request.gateway].used[request.pod].ledger, now)

    def ended(self, request: Request, now: float) -> bool:
        """Close it; try again once if the budget allows."""
        gateway = self._gateways[request.gateway]
        seen = gateway.used[request.pod]
        assert isinstance(request.token, Ticket)
        if not request.failed:
            ledger, pod = seen.ledger, seen.pod
            running = min(request.held, pod.slots)
            ledger.hear(running, request.held - running, pod.slots, now)
            request.token.finish(Ending.ANSWERED, now)
            gateway.latencies.observe((now - request.token.started_at) * 1000.0)
            return False
        request.token.finish(Ending.FAILED, now)
        if seen.ledger.failures >= gateway.outliers.rules.failures and seen.id not in gateway.outliers.ejected:
            gateway.review(now)
        return len(request.tried) == 1 and gateway.budget.try_spend(now)

    def report(self, now: float) -> None:
        """Tell of the pods that have not been heard lately."""
        for gateway in self._gateways:
            for one in gateway.seen.values():
                if one.ledger.expects_news(now):
                    running = min(one.pod.held, one.pod.slots)
                    one.ledger.hear(running, one.pod.held - running, one.pod.slots, now)

    def tick(self, now: float) -> None:
        """Review each gateway's pods."""
        for gateway in self._gateways:
            gateway.review(now)

    def changed(self, now: float) -> None:
        """Take the membership over."""
        alive = self._world.alive
        for gateway in self._gateways:
            gateway.engage(alive, now)
