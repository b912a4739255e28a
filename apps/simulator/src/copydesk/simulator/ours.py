"""Copydesk's own policy: `copydesk.autoscaler.decide`, called as the live service calls it."""

from __future__ import annotations

import copydesk.autoscaler as autoscaler
from copydesk.autoscaler.observation import GatewayDemand, Observation
from copydesk.autoscaler.state import State
from copydesk.simulator.policy import View

EVERY_S = 2


class Copydesk:
    """The live decision, every two seconds, on the reports of gateways."""

    def __init__(self, policy: autoscaler.Policy) -> None:
        self._policy = policy
        self._state = State()

    def decide(self, view: View, now: float) -> int:
        """Return what `decide` says; in between, what it said."""
        if int(now) % EVERY_S:
            return view.size
        flow = view.flow
        report = GatewayDemand(
            "all", now, flow.in_flight, flow.queued, flow.shed, flow.service_s or None, flow.p99_ms
        )
        observation = Observation(view.size, (report,), view.pods)
        decision, self._state = autoscaler.decide(self._policy, self._state, observation, now)
        return decision.replicas
