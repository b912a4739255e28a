"""The fleet that a candidate would have, and what it would see of the demand that the real fleet meets.

A candidate is shown the same demand, as pods' worth of work: that does not depend on how many pods there are. From
it follows what the gateways would report of *its* fleet. Pods that can do the work would have as many requests as
the certificate's curve says. If there are too few they would be full, and the rest wait; or be refused, if the
real fleet refuses at that moment. So a candidate sees its own shortage as a live autoscaler sees one. Where it has
more pods than there really are, the work is read off the real, fuller ones.

The pods are idealised: each works one cold start after its order, none dies. What latency they would have had is
not known and not made up; how much work there would have been for them is (`Virtual` in the log).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from copydesk.autoscaler import demand as demands
from copydesk.autoscaler.decide import Policy
from copydesk.autoscaler.observation import GatewayDemand, Observation, Pod, PodState
from copydesk.autoscaler.pods import count

LARGEST = 1e9
MOST_PODS = 10_000


@dataclass(frozen=True, slots=True)
class VirtualFleet:
    """Pods by the moment in which they were ordered, the oldest first."""

    orders: tuple[float, ...]

    @classmethod
    def like(cls, size: int) -> VirtualFleet:
        """Return a fleet of pods that have been at work for long; no more than can be remembered of a real one."""
        return cls((-math.inf,) * min(MOST_PODS, max(0, size)))

    @property
    def size(self) -> int:
        """The pods that are asked for."""
        return len(self.orders)

    def resized(self, size: int, now: float) -> VirtualFleet:
        """Return the fleet after a decision; the newest pods go first."""
        return VirtualFleet((*self.orders[:size], *(now,) * (size - self.size)))

    def ready(self, cold_start_s: float, now: float) -> int:
        """Return how many pods work at `now`."""
        return sum(now - at >= cold_start_s for at in self.orders)

    def pods(self, cold_start_s: float, load: float | None, now: float) -> tuple[Pod, ...]:
        """Return them as pods, each ready one with this load."""
        return tuple(
            Pod(f"virtual-{number}", PodState.READY, max(0.0, at + cold_start_s), load)
            if now - at >= cold_start_s
            else Pod(f"virtual-{number}", PodState.PENDING, at)
            for number, at in enumerate(self.orders, 1)
        )


def real_work(policy: Policy, seen: Observation, usual_s: float, now: float) -> float:
    """Return the pods' worth of work that the real fleet meets, in pods of the candidate's capacity."""
    census = count(seen.pods, policy.rules.cold_start_s, policy.rules.stuck_after, now)
    return demands.measure(seen.gateways, census, policy.capacity, policy.rules, usual_s, now).work


def shown(policy: Policy, fleet: VirtualFleet, seen: Observation, work: float, now: float) -> Observation:
    """Return what there would be to see of the candidate's fleet, with so much work."""
    rules, capacity = policy.rules, policy.capacity
    ready = fleet.ready(rules.cold_start_s, now)
    running = ready * capacity.concurrency_at(min(1.0, work / ready)) if ready else 0.0
    excess = max(0.0, work - ready) * capacity.rate  # requests a second that come beyond what the pods do
    refusing = any(one.shed > 0.0 for one in seen.gateways)
    waiting, refused = (0.0, excess) if refusing else (excess * rules.drain_s, 0.0)
    known = all(pod.load is not None for pod in seen.pods if pod.state is PodState.READY)
    load = (running + waiting) / ready if known and ready else None
    return replace(
        seen,
        size=fleet.size,
        gateways=_spread(seen.gateways, running, waiting, refused),
        pods=fleet.pods(rules.cold_start_s, load, now),
    )


def _spread(
    gateways: Sequence[GatewayDemand], running: float, waiting: float, refused: float
) -> tuple[GatewayDemand, ...]:
    """Divide requests among gateways as they have them now; evenly, if they have none."""
    weights = [_weight(one) for one in gateways]
    total = sum(weights)
    parts = [weight / total for weight in weights] if total > 0.0 else [1.0 / len(weights) for _ in weights]
    return tuple(
        GatewayDemand(one.gateway, one.at, running * part, waiting * part, refused * part)
        for one, part in zip(gateways, parts, strict=True)
    )


def _weight(one: GatewayDemand) -> float:
    weight = one.in_flight + one.queued
    return weight if 0.0 <= weight < LARGEST else 0.0
