"""The faults that can strike a fleet: whom, for how long, and in words."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass


class Kind(enum.StrEnum):
    """One fault."""

    POD_KILL = "pod-kill"
    POD_FREEZE = "pod-freeze"
    POD_SLOW = "pod-slow"
    ENGINE_KILL = "engine-kill"
    ENGINE_FREEZE = "engine-freeze"
    WORKER_KILL = "worker-kill"
    LINK_DELAY = "link-delay"
    LINK_NARROW = "link-narrow"
    LINK_DROP = "link-drop"
    LINK_ONE_WAY = "link-one-way"
    LINK_HALF_OPEN = "link-half-open"
    LINK_RESET = "link-reset"
    NATS_KILL = "nats-kill"
    NATS_AWAY = "nats-away"
    EDS_KILL = "eds-kill"
    EDS_FREEZE = "eds-freeze"
    AUTOSCALER_KILL = "autoscaler-kill"
    AUTOSCALER_FREEZE = "autoscaler-freeze"
    REDIS_KILL = "redis-kill"
    REDIS_AWAY = "redis-away"


class Track(enum.Enum):
    """Faults of one track never overlap: of the pods and the way to them, one at a time is broken."""

    PODS = "pods"
    CONTROL = "control"


@dataclass(frozen=True, slots=True)
class Shape:
    """How a kind strikes: for `shortest` to `longest` seconds (0: a blow, over at once), and what it does."""

    track: Track
    words: str
    shortest: float = 0.0
    longest: float = 0.0


_PODS, _CONTROL = Track.PODS, Track.CONTROL
SHAPES: dict[Kind, Shape] = {
    Kind.POD_KILL: Shape(_PODS, "SIGKILL of a pod's supervisor, with which its engine and workers die"),
    Kind.POD_FREEZE: Shape(_PODS, "SIGSTOP of all processes of a pod", 3.0, 15.0),
    Kind.POD_SLOW: Shape(_PODS, "a pod's engine stands still nine tenths of the time", 8.0, 20.0),
    Kind.ENGINE_KILL: Shape(_PODS, "SIGKILL of a pod's engine"),
    Kind.ENGINE_FREEZE: Shape(_PODS, "SIGSTOP of a pod's engine, whose workers go on answering pings", 2.0, 12.0),
    Kind.WORKER_KILL: Shape(_PODS, "SIGKILL of a pod's RPC worker"),
    Kind.LINK_DELAY: Shape(_PODS, "200 ms more each way between gateway and pod", 5.0, 15.0),
    Kind.LINK_NARROW: Shape(_PODS, "4 kB/s between gateway and pod", 5.0, 15.0),
    Kind.LINK_DROP: Shape(_PODS, "nothing passes between gateway and pod, and nobody is told", 3.0, 12.0),
    Kind.LINK_ONE_WAY: Shape(_PODS, "requests reach a pod, answers do not come back", 3.0, 12.0),
    Kind.LINK_HALF_OPEN: Shape(_PODS, "connections to a pod that its side has forgotten; then RST", 3.0, 12.0),
    Kind.LINK_RESET: Shape(_PODS, "RST of every connection to a pod"),
    Kind.NATS_KILL: Shape(_CONTROL, "SIGKILL of nats-server"),
    Kind.NATS_AWAY: Shape(_CONTROL, "SIGSTOP of nats-server", 5.0, 40.0),
    Kind.EDS_KILL: Shape(_CONTROL, "SIGKILL of discovery"),
    Kind.EDS_FREEZE: Shape(_CONTROL, "SIGSTOP of discovery", 5.0, 30.0),
    Kind.AUTOSCALER_KILL: Shape(_CONTROL, "SIGKILL of the autoscaler"),
    Kind.AUTOSCALER_FREEZE: Shape(_CONTROL, "SIGSTOP of the autoscaler", 5.0, 30.0),
    Kind.REDIS_KILL: Shape(_CONTROL, "SIGKILL of redis-server"),
    Kind.REDIS_AWAY: Shape(_CONTROL, "SIGSTOP of redis-server", 3.0, 20.0),
}
DELAY_S = 0.2
NARROW_BYTES_PER_S = 4_000.0


def of_links(kinds: Iterable[Kind]) -> tuple[Kind, ...]:
    """Return those that need a proxy before the pods."""
    return tuple(kind for kind in kinds if kind.value.startswith("link-"))


def owner(kind: Kind) -> str:
    """Name the process that a fault of the control track strikes."""
    return kind.value.partition("-")[0]
