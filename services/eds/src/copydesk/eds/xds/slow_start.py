"""How much each pod counts: one that has just become ready warms up with use, as it does for the gateways.

The clock is this process's. What a pod says of its start tells whether it is another run of the pod, and, for
those that were there before this process, how long ago that was.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from copydesk.common.messages import Endpoint, EndpointState
from copydesk.eds.roster import Listing
from copydesk.routing import warmth

FULL = 100
"""The weight of a pod that is warm."""

# Each step is an update of every subscriber, and more of them would make no difference that can be measured.
STEPS = 10


@dataclass(frozen=True, slots=True)
class Birth:
    """When a run of a pod, known by its `started_at`, first was ready: `at`, in monotonic seconds."""

    started_at: float
    at: float


Births = Mapping[str, Birth]


def births(known: Births | None, listing: Listing, now: float, wall: float) -> Births:
    """Note which pods of `listing` are ready for the first time at `now`; `wall` is the same in Unix seconds.

    With nothing `known` this process has just begun, and the pods have not: they are as old as they say, or warm.
    """
    before = known or {}
    after: dict[str, Birth] = {}
    for endpoint in listing:
        birth = before.get(endpoint.id)
        if birth is not None and birth.started_at == endpoint.started_at:
            after[endpoint.id] = birth
        elif endpoint.state is EndpointState.READY:
            at = now if known is not None else now - _age(endpoint, wall)
            after[endpoint.id] = Birth(endpoint.started_at, at)
    return after


def weight(birth: Birth | None, now: float, warm: float) -> int:
    """Return what a pod counts at `now` that takes `warm` seconds; one never ready gets no work anyway."""
    if birth is None:
        return FULL
    return math.ceil(warmth(now - birth.at, warm) * STEPS) * FULL // STEPS


def is_warming(known: Births, now: float, warm: float) -> bool:
    """Say whether any weight is still to change."""
    return any(now - birth.at < warm for birth in known.values())


def _age(endpoint: Endpoint, wall: float) -> float:
    return max(0.0, wall - endpoint.started_at) if endpoint.started_at > 0.0 else math.inf
