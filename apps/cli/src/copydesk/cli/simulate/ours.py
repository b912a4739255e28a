"""Copydesk's own rule: gateways that choose by the very code of `copydesk.routing`."""

from __future__ import annotations

from copydesk.cli.simulate.world import Request, World
from copydesk.routing import Ending, Ticket
from copydesk.simulator.gateway import Gateway


class Copydesk:
    """All gateways."""

    def __init__(self, world: World) -> None:
        self._world = world
        zones = world.scenario.zones
        self._gateways = [
            Gateway(number, f"zone-{number % zones}" if zones else "") for number in range(world.scenario.gateways)
        ]
        self.changed(0.0)

    def pick(self, request: Request, now: float) -> int | None:
        """As its gateway chooses."""
        gateway = self._gateways[request.gateway]
        if not request.tried:
            gateway.budget.request(now)
        return gateway.pick(request.tried, now, self._world.random.random)

    def sent(self, request: Request, now: float) -> None:
        """Open a ticket."""
        request.token = Ticket(self._gateways[request.gateway].used[request.pod].ledger, now)

    def ended(self, request: Request, now: float) -> bool:
        """Close it; try again once if the budget allows."""
        gateway = self._gateways[request.gateway]
        seen = gateway.used[request.pod]
        assert isinstance(request.token, Ticket)
        if not request.failed:
            gateway.answered(request.pod, request.token, request.held, now)
            return False
        request.token.finish(Ending.FAILED, now)
        if seen.ledger.failures >= gateway.outliers.rules.failures and seen.id not in gateway.outliers.ejected:
            gateway.review(now)
        return len(request.tried) == 1 and gateway.budget.try_spend(now)

    def report(self, now: float) -> None:
        """Tell of the pods that have not been heard lately."""
        for gateway in self._gateways:
            gateway.report(now)

    def tick(self, now: float) -> None:
        """Review each gateway's pods."""
        for gateway in self._gateways:
            gateway.review(now)

    def changed(self, now: float) -> None:
        """Take the membership over."""
        alive = self._world.alive
        for gateway in self._gateways:
            gateway.engage(alive, now)
