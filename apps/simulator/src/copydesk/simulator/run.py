"""One trace under one policy: second by second, into arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from copydesk.simulator.clairvoyant import Counts
from copydesk.simulator.fleet import Fleet, Luck
from copydesk.simulator.fluid import Fluid
from copydesk.simulator.policy import Policy, View
from copydesk.simulator.profile import Profile
from copydesk.simulator.trace import Seconds

FIRST_SHARE = 0.85
"""Of the certified rate, that pods have at the beginning: all policies begin with the same fleet."""

GATEWAY_QUEUE, GATEWAY_RATE = 512, 10_000.0
"""What one gateway process lets wait (its default), and the requests a second that it is given."""


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """What happened in each second. `paid` are the pods that exist, `working` the capacity in use."""

    arrivals: Seconds
    served: Seconds
    shed: Seconds
    working: Seconds
    paid: Seconds
    p50_ms: Seconds
    p99_ms: Seconds
    wait_ms: Seconds
    moves: int


def first_size(arrivals: Seconds, profile: Profile) -> int:
    """Return the size of the fleet that all policies take over."""
    return max(1, int(np.ceil(arrivals[:60].mean() / (FIRST_SHARE * profile.capacity.rate))))


def queue_room(arrivals: Seconds) -> float:
    """Return how many requests the gateways let wait: as many gateways as the peak takes, each with its queue."""
    return GATEWAY_QUEUE * float(np.ceil(arrivals.max() / GATEWAY_RATE))


def run(arrivals: Seconds, profile: Profile, policy: Policy, luck: Luck) -> Timeline:
    """Let a policy have a fleet for the length of a trace."""
    fleet, fluid = (
        Fleet.warm(luck, profile.warming(), first_size(arrivals, profile)),
        Fluid(profile, queue_room(arrivals)),
    )
    rows: list[tuple[float, ...]] = []
    for second, coming in enumerate(arrivals.tolist()):
        now = float(second)
        fleet.advance(now)
        working = fleet.working(now)
        flow = fluid.step(coming, working)
        rows.append((flow.served, flow.shed, working, fleet.count, flow.p50_ms, flow.p99_ms, flow.wait_ms))
        view = View(flow, fleet.size, fleet.seen(), fleet.count, fleet.ready)
        fleet.resize(policy.decide(view, now + 1.0), now + 1.0)
    return _timeline(arrivals, rows, fleet.moves)


def run_plan(arrivals: Seconds, profile: Profile, working: Counts, paid: Counts, moves: int) -> Timeline:
    """Let a fleet have just so many pods in each second."""
    fluid = Fluid(profile, queue_room(arrivals))
    rows: list[tuple[float, ...]] = []
    for coming, pods, cost in zip(arrivals.tolist(), working.tolist(), paid.tolist(), strict=True):
        flow = fluid.step(coming, float(pods))
        rows.append((flow.served, flow.shed, pods, cost, flow.p50_ms, flow.p99_ms, flow.wait_ms))
    return _timeline(arrivals, rows, moves)


def _timeline(arrivals: Seconds, rows: list[tuple[float, ...]], moves: int) -> Timeline:
    served, shed, working, paid, p50, p99, wait = np.array(rows).T
    return Timeline(arrivals, served, shed, working, paid, p50, p99, wait, moves)
