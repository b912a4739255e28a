"""Which pods a fleet shall start and which it shall let go, to be as large as was decided. Pure data."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice

from copydesk.common.errors import CopydeskError

_RANGE = re.compile(r"([0-9]{1,4}):([0-9]{1,4})")
MOST_PODS = 256


class LimitsError(CopydeskError):
    """Text that names no limits, or limits that cannot be kept: it carries the text, and what is wrong."""

    def __init__(self, text: str, reason: str) -> None:
        self.text = text
        self.reason = reason
        super().__init__(f"{text!r}: {reason}")


@dataclass(frozen=True, slots=True)
class Limits:
    """The smallest and the largest fleet, whatever is decided."""

    least: int
    most: int

    @classmethod
    def parse(cls, text: str) -> Limits:
        """Read `MIN:MAX`; raises `LimitsError`."""
        found = _RANGE.fullmatch(text.strip())
        if found is None:
            raise LimitsError(text, "expected MIN:MAX, such as 1:4")
        least, most = map(int, found.groups())
        if not 1 <= least <= most <= MOST_PODS:
            raise LimitsError(text, f"expected 1 <= MIN <= MAX <= {MOST_PODS}")
        return cls(least, most)

    def clamp(self, size: int) -> int:
        """Return the size nearest to `size` that is allowed."""
        return min(self.most, max(self.least, size))

    def __str__(self) -> str:
        """Write them as they are read."""
        return f"{self.least}:{self.most}"


@dataclass(frozen=True, slots=True)
class PodView:
    """One pod that the supervisor has: `ready` if it takes requests, `draining` if it was told to end.

    `running` says that it has a process (not one that waits for its restart), `started` when that began: pods are
    compared by it, so any clock will do.
    """

    name: str
    started: float = 0.0
    running: bool = True
    ready: bool = False
    draining: bool = False


@dataclass(frozen=True, slots=True)
class Moves:
    """What brings a fleet nearer to its size now: pods to start, and at most one to drain."""

    start: tuple[str, ...] = ()
    drain: str | None = None


def plan_moves(pods: Sequence[PodView], size: int, limits: Limits) -> Moves:
    """Say what to do for a fleet of `size` pods, or as near to it as `limits` allow.

    A pod that drains cannot be called back, since its gateways have left it; so more pods means new ones. But it
    holds its memory to the end, and `limits.most` is what the user trusts the machine with: then the new one waits
    for the old one's end, which is seconds away. Pods drain one after the other: a request that meets a draining
    pod is asked of one other pod, which must not be draining too.
    """
    goal = limits.clamp(size)
    staying = [pod for pod in pods if not pod.draining]
    room = limits.most - len(pods)
    missing = min(goal - len(staying), room)
    if missing > 0:
        return Moves(start=tuple(islice(_free_names(pods), missing)))
    if len(staying) > goal and any(pod.ready for pod in staying):
        return Moves(drain=_most_dispensable(staying).name)
    return Moves()


def _most_dispensable(staying: Iterable[PodView]) -> PodView:
    """Choose who goes: first whoever serves nobody yet, then the youngest.

    Load is no criterion: balancing gives all of them the same. The oldest have shown that they last.
    """
    return min(staying, key=lambda pod: (pod.ready, pod.running, -pod.started, pod.name))


def _free_names(pods: Iterable[PodView]) -> Iterator[str]:
    taken = {pod.name for pod in pods}
    return (name for name in map(pod_name, count(1)) if name not in taken)


def pod_name(number: int) -> str:
    """Return the name by which a pod appears in discovery."""
    return f"pod-{number}"
