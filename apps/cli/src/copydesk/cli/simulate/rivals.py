"""The rules that others balance by, and those that know more than anybody can."""

from __future__ import annotations

from collections.abc import Callable

from copydesk.cli.simulate.world import Request, Rule, SimPod, World


class _Plain:
    """What the rules here have in common: they retry nothing, and know at once who has come or gone."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.random = world.random.random
        self.alive = world.alive

    def sent(self, request: Request, now: float) -> None:
        """Nothing is remembered."""

    def ended(self, request: Request, now: float) -> bool:
        """A failure is the client's."""
        return False

    def report(self, now: float) -> None:
        """Not listened to."""

    def tick(self, now: float) -> None:
        """Nothing to do."""

    def changed(self, now: float) -> None:
        """Take the membership over."""
        self.alive = self.world.alive


class RoundRobin(_Plain):
    """Each gateway goes round the pods in an order of its own."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._orders: list[list[SimPod]] = []
        self._next: list[int] = []
        self.changed(0.0)

    def changed(self, now: float) -> None:
        """Shuffle anew."""
        super().changed(now)
        gateways = range(self.world.scenario.gateways)
        self._orders = [self.world.random.sample(self.alive, len(self.alive)) for _ in gateways]
        self._next = [0 for _ in gateways]

    def pick(self, request: Request, now: float) -> int:
        """The next one."""
        order = self._orders[request.gateway]
        turn = self._next[request.gateway] = (self._next[request.gateway] + 1) % len(order)
        return order[turn].index


class Random(_Plain):
    """Any pod."""

    def pick(self, request: Request, now: float) -> int:
        """Any."""
        return self.alive[int(self.random() * len(self.alive))].index


class TwoChoices(_Plain):
    """The better of two by `cost(gateway, pod)`."""

    def cost(self, gateway: int, pod: SimPod) -> float:
        """What one more request on a pod costs, as far as is known: here the truth."""
        return pod.held

    def pick(self, request: Request, now: float) -> int:
        """The better of two."""
        count = len(self.alive)
        first, second = int(self.random() * count), int(self.random() * (count - 1))
        second += second >= first
        one, other = self.alive[first], self.alive[second]
        gateway = request.gateway
        return one.index if self.cost(gateway, one) <= self.cost(gateway, other) else other.index


class TwoChoicesOwn(TwoChoices):
    """The better of two by a gateway's own requests in flight: Envoy's and nginx's rule."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        size = len(world.pods) + world.scenario.joining
        self._own = [[0] * size for _ in range(world.scenario.gateways)]

    def cost(self, gateway: int, pod: SimPod) -> float:
        """Own requests in flight."""
        return self._own[gateway][pod.index]

    def sent(self, request: Request, now: float) -> None:
        """One more."""
        self._own[request.gateway][request.pod] += 1

    def ended(self, request: Request, now: float) -> bool:
        """One less."""
        self._own[request.gateway][request.pod] -= 1
        return False


class TwoChoicesReported(TwoChoices):
    """The better of two by what pods report every 250 ms."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.told = [0] * (len(world.pods) + world.scenario.joining)

    def report(self, now: float) -> None:
        """Take all reports in."""
        for pod in self.world.pods:
            self.told[pod.index] = pod.held

    def cost(self, gateway: int, pod: SimPod) -> float:
        """As last reported."""
        return self.told[pod.index]


class LeastReported(TwoChoicesReported):
    """The least loaded of all by what pods report every 250 ms."""

    def pick(self, request: Request, now: float) -> int:
        """The least loaded; of equals the first behind a random place."""
        return _least(self.alive, self.random(), lambda pod: self.told[pod.index])


class LeastKnown(_Plain):
    """The least loaded of all, by the truth of this very moment."""

    def pick(self, request: Request, now: float) -> int:
        """The least loaded."""
        return _least(self.alive, self.random(), lambda pod: pod.held)


class Clairvoyant(_Plain):
    """The pod that will answer first: it knows the load of each and which are slow, cold or failing."""

    def pick(self, request: Request, now: float) -> int:
        """The soonest."""
        return _least(self.alive, self.random(), _delay)


def _delay(pod: SimPod) -> float:
    rounds = max(0, pod.held + 1 - pod.slots) / pod.slots
    cold = 5.0 if pod.cold else 1.0
    return 1e9 if pod.failing else pod.factor * cold * (1.0 + rounds)


def _least(pods: list[SimPod], share: float, cost: Callable[[SimPod], float]) -> int:
    start = int(share * len(pods))
    return min(pods[start:] + pods[:start], key=cost).index


RIVALS: dict[str, Callable[[World], Rule]] = {
    "round robin": RoundRobin,
    "random": Random,
    "least loaded, reports": LeastReported,
    "two choices, reports": TwoChoicesReported,
    "two choices, own requests": TwoChoicesOwn,
}

PERFECT: dict[str, Callable[[World], Rule]] = {
    "two choices, perfect information": TwoChoices,
    "least loaded, perfect information": LeastKnown,
    "soonest answer, clairvoyant": Clairvoyant,
}
