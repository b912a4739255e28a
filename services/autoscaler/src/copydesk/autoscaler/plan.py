"""What is to be scaled: one plan for each model, with its candidate if it has one."""

from __future__ import annotations

from dataclasses import dataclass, field

from copydesk.autoscaler.capacity import Capacity
from copydesk.autoscaler.decide import Policy
from copydesk.autoscaler.limits import Limits
from copydesk.autoscaler.rules import Rules
from copydesk.common.errors import CopydeskError


class PlanError(CopydeskError):
    """A configuration with which nothing can begin: `key` names the setting, `problem` what is wrong with it."""

    exit_code = 2

    def __init__(self, key: str, problem: str) -> None:
        self.key = key
        self.problem = problem
        super().__init__(f"{key}: {problem}")


@dataclass(frozen=True, slots=True)
class CapacitySource:
    """Where the capacity of a pod is from: a certificate (`capacity`, for weights of `digest`), or assumptions.

    Without either `concurrency` or `rate`, a pod's own word counts, as soon as one is heard.
    """

    capacity: Capacity | None = None
    certificate: str = ""
    digest: str = ""
    concurrency: float = 0.0
    rate: float = 0.0
    slo_ms: float = 1000.0

    @property
    def assumed(self) -> bool:
        """Whether nobody has measured it."""
        return self.capacity is None

    def given(self, slots: int | None) -> Capacity | None:
        """Return the capacity of a pod that reports so many slots, None while nothing is known."""
        if self.capacity is not None:
            return self.capacity
        concurrency = self.concurrency or self.rate * self.slo_ms / 2000.0 or float(slots or 0)
        return Capacity.assumed(concurrency, self.slo_ms, self.rate) if concurrency > 0.0 else None


@dataclass(frozen=True, slots=True)
class Configuration:
    """By what is decided. `name` is "live", or that of a candidate."""

    name: str = "live"
    limits: Limits = field(default_factory=Limits)
    rules: Rules = field(default_factory=Rules)
    source: CapacitySource = field(default_factory=CapacitySource)

    def policy(self, slots: int | None) -> Policy | None:
        """Return the policy with what pods report, None while their capacity is not known."""
        capacity = self.source.given(slots)
        return None if capacity is None else Policy(capacity, self.limits, self.rules)


@dataclass(frozen=True, slots=True)
class Plan:
    """One model. `image` is what its nodes are to have at hand.

    `workload` is what is scaled in Kubernetes, as deployments/NAME, in `namespace`; "": what is usual.
    """

    model: str
    live: Configuration = field(default_factory=Configuration)
    candidate: Configuration | None = None
    image: str = ""
    workload: str = ""
    namespace: str = ""
