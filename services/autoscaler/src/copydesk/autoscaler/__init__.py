"""How many pods a model needs: `decide` is a pure function over observations; services feed it and act on it."""

from copydesk.autoscaler.capacity import Capacity
from copydesk.autoscaler.decide import Policy, decide
from copydesk.autoscaler.decision import Decision, Inputs, Rule
from copydesk.autoscaler.limits import Limits, LimitsError
from copydesk.autoscaler.observation import GatewayDemand, Observation, Pod, PodState
from copydesk.autoscaler.rules import Rules
from copydesk.autoscaler.state import State

__all__ = [
    "Capacity",
    "Decision",
    "GatewayDemand",
    "Inputs",
    "Limits",
    "LimitsError",
    "Observation",
    "Pod",
    "PodState",
    "Policy",
    "Rule",
    "Rules",
    "State",
    "decide",
]
