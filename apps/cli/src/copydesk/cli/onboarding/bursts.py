"""The load under which settings are compared: bursts of a few requests and of many, through gateway and pod."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from copydesk.common.errors import CopydeskError
from copydesk.loadtest.client import Target, correction_bodies
from copydesk.loadtest.generators import Generators

SHAPES = (8, 32)
"""Requests at once: about what a pod has in flight at its highest rate, and a full batch."""
LEAST = 3
"""Measurements, however long they take: fewer have no interval."""
_GRACE_S = 120.0
_FULL = "http_429"


class BurstFailedError(CopydeskError):
    """A request of a burst failed, for `reason`."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"a request failed: {reason}")


def burst_rates(url: str, texts: Sequence[str], seconds: float) -> tuple[float, ...]:
    """Send bursts of all shapes in turn for some seconds; return requests a second of each turn.

    Raises:
        BurstFailedError: A request failed.
        GeneratorError: The process that sends ended by itself.
    """
    return asyncio.run(_rates(Target(url=url, bodies=correction_bodies(texts)), seconds))


async def _rates(target: Target, seconds: float) -> tuple[float, ...]:
    async with Generators(target) as generators:
        for shape in (1, *SHAPES):
            await _burst(generators, shape)
        rates: list[float] = []
        end = time.monotonic() + seconds
        while len(rates) < LEAST or time.monotonic() < end:
            bursts = [await _burst(generators, shape) for shape in SHAPES]
            rates.append(sum(count for count, _ in bursts) / sum(took for _, took in bursts))
        return tuple(rates)


async def _burst(generators: Generators, count: int) -> tuple[int, float]:
    """Return how many of so many requests at once were answered, and the seconds until all were over.

    What a fleet refuses because it is full counts as not answered, and no more: a slower setting refuses more.
    """
    samples = await generators.fly([0.0] * count, grace=_GRACE_S)
    failures = [sample.failure for sample in samples if sample.failure is not None]
    fatal = next((failure for failure in failures if failure.kind != _FULL), None)
    if fatal is not None or len(failures) == count:
        raise BurstFailedError(str(fatal or failures[0])[:300])
    return count - len(failures), max(sample.finished for sample in samples)
