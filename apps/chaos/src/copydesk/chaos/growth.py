"""Whether a process grew: what it holds, told from what it takes once and from what swings."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import msgspec

from copydesk.chaos.census import Course, Reading
from copydesk.loadtest.growth import growth_p_value

LEAST_READINGS = 20
"""Fewer readings of a process tell no trend."""
WARM = 0.4
"""The part of a process's readings that is not looked at: caches and pools fill once."""
SURE = 0.01
_MOST_PAIRS_OF = 120


@dataclass(frozen=True, slots=True)
class Quantity:
    """Something that a process holds. Growth is a leak from `allowance` on, or from `share` of what was there.

    Of a reading that does not tell it, it is None.
    """

    name: str
    of: Callable[[Reading], float | None]
    allowance: float
    share: float = 0.0


QUANTITIES = (
    Quantity("descriptors", lambda reading: reading.descriptors, 8.0),
    Quantity("connections", lambda reading: reading.connections, 8.0),
    Quantity("threads", lambda reading: reading.threads, 4.0),
    Quantity("tasks", lambda reading: reading.tasks, 16.0),
    Quantity("memory_bytes", lambda reading: reading.memory_bytes, 24.0 * 2**20, 0.1),
)


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """How `quantity` of a process went over `seconds`: `grown` is the rise of the line through its readings.

    `per_hour` is its slope. It is a leak when it is more than `allowed`, and not just a swing.
    """

    name: str
    pid: int
    quantity: str
    seconds: float
    first: float
    last: float
    grown: float
    per_hour: float
    allowed: float
    leaks: bool


def judge_growth(courses: Iterable[Course]) -> tuple[Growth, ...]:
    """Judge every quantity of every process that lived long enough, the worst first."""
    found = [_judge(course, quantity) for course in courses for quantity in QUANTITIES]
    told = [growth for growth in found if growth is not None]
    return tuple(sorted(told, key=lambda growth: (not growth.leaks, -growth.grown / growth.allowed)))


def _judge(course: Course, quantity: Quantity) -> Growth | None:
    told = [(reading.at, value) for reading in course.readings if (value := quantity.of(reading)) is not None]
    if len(told) < LEAST_READINGS:
        return None
    times, values = zip(*told[int(WARM * len(told)) :], strict=True)
    slope = median_slope(times, values)
    seconds = times[-1] - times[0]
    allowed = max(quantity.allowance, quantity.share * values[0])
    grown = slope * seconds
    return Growth(
        name=course.name,
        pid=course.pid,
        quantity=quantity.name,
        seconds=seconds,
        first=values[0],
        last=values[-1],
        grown=grown,
        per_hour=3600.0 * slope,
        allowed=allowed,
        leaks=grown > allowed and growth_p_value(values) < SURE,
    )


def median_slope(times: Sequence[float], values: Sequence[float]) -> float:
    """Return the median of the slopes between all pairs (Theil, 1950; Sen, 1968): single spikes do not move it."""
    step = -(-len(times) // _MOST_PAIRS_OF)
    points = list(zip(times, values, strict=True))[::step]
    slopes = [(y - v) / (x - u) for (u, v), (x, y) in combinations(points, 2) if x > u]
    return statistics.median(slopes) if slopes else 0.0
