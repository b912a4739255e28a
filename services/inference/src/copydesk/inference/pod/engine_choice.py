"""Which of a pod's engines gets a request, and how busy they are taken together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from copydesk.common.rpc.frames import Load


@dataclass(frozen=True, slots=True)
class Standing:
    """An engine as a worker sees it; one without `room` would refuse whatever this worker sent it now."""

    load: Load
    room: bool = True


def choose_engine(standings: Sequence[Standing | None]) -> int | None:
    """Return the index of the engine that has room and the least work for its capacity, or None if none has room.

    None among the standings is an engine that is down.
    """
    outstanding = [
        ((standing.load.running + standing.load.queued) / max(standing.load.capacity, 1), index)
        for index, standing in enumerate(standings)
        if standing is not None and standing.room
    ]
    return min(outstanding)[1] if outstanding else None


def total_load(loads: Iterable[Load]) -> Load:
    """Return the sum of several engines' loads, and the mean of what a step takes where steps are made."""
    engines = tuple(loads)
    paces = [engine.step_ms for engine in engines if engine.step_ms > 0]
    return Load(
        running=sum(engine.running for engine in engines),
        queued=sum(engine.queued for engine in engines),
        capacity=sum(engine.capacity for engine in engines),
        step_ms=sum(paces) / len(paces) if paces else 0.0,
    )
