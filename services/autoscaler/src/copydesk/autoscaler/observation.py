"""What is known of one model's fleet at one moment: the reports of its gateways, and its pods.

Moments are seconds on one steady clock, the same that `decide` gets as `now`. It must never be set back or
forward: a live service takes the wall clock once, at its start, and then counts on by the monotonic one. (The
time of day matters to the forecast only.)
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class PodState(enum.StrEnum):
    """What a pod is about: starting, working, or ending what it has."""

    PENDING = "pending"
    READY = "ready"
    DRAINING = "draining"


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod. `since` is when it was first seen in its state; `load` what it runs and queues, None if not heard.

    A load that is too old to count is None too: whoever observes judges that.
    """

    id: str
    state: PodState
    since: float
    load: float | None = None


@dataclass(frozen=True, slots=True)
class GatewayDemand:
    """The last report of one gateway; `at` is when it arrived, on the observer's clock.

    `in_flight` and `queued` are means over time since the report before; `shed` is refused requests a second;
    `service_s` is the mean time that a request takes at a pod, None while none has been answered; `p99_ms` is the
    99th percentile of latency, None likewise; `answered` are answers a second, None if not known. Zero is what a
    report says; a missing report says nothing.
    """

    gateway: str
    at: float
    in_flight: float
    queued: float
    shed: float = 0.0
    service_s: float | None = None
    p99_ms: float | None = None
    answered: float | None = None


@dataclass(frozen=True, slots=True)
class Observation:
    """The fleet of one model. `size` is the number of pods that was last asked for (the spec, not who is there).

    `gateways` holds the last report of each gateway that has not said good-bye, however old it is: `decide` judges
    the age. `members_stale` says that discovery cannot see its source at present, so that `pods` may be wrong.
    """

    size: int
    gateways: tuple[GatewayDemand, ...]
    pods: tuple[Pod, ...]
    members_stale: bool = False
