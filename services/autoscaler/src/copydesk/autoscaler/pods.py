"""Which pods count: those that work, those that soon will, and those that are not waited for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from copydesk.autoscaler.observation import Pod, PodState
from copydesk.routing import warmth


@dataclass(frozen=True, slots=True)
class Census:
    """The pods counted. `effective` adds to the ready ones those that start, each by how far it should have come.

    `load` is what all ready and draining pods run and queue, None unless each ready one has said so.
    """

    ready: int
    pending: int
    stuck: tuple[str, ...]
    effective: float
    load: float | None


def count(pods: Iterable[Pod], cold_start_s: float, stuck_after: float, now: float) -> Census:
    """Count the pods; one that has not become ready for `stuck_after` cold starts is stuck."""
    ready = pending = 0
    starting, load, heard = 0.0, 0.0, True
    stuck: list[str] = []
    for pod in pods:
        working = pod.state is PodState.READY
        if pod.load is not None and 0.0 <= pod.load < _ABSURD:
            load += pod.load
        elif working:
            heard = False
        if working:
            ready += 1
        elif pod.state is PodState.PENDING:
            age = now - pod.since
            if age > stuck_after * cold_start_s:
                stuck.append(pod.id)
            else:
                pending += 1
                starting += warmth(max(0.0, age), cold_start_s)
    return Census(ready, pending, tuple(stuck), ready + starting, load if heard else None)


_ABSURD = 1e9
