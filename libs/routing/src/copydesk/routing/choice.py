"""Power of two choices: look at two pods at random, take the better.

Mitzenmacher, "The Power of Two Choices in Randomized Load Balancing" (IEEE TPDS 2001). Against stale or partial
knowledge it holds where "least loaded of all" herds: every gateway would send to the same pod at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol, TypeVar

from copydesk.routing.score import Standing, better


class Candidate(Protocol):
    """What can be chosen: it has a name and a standing."""

    @property
    def id(self) -> str:
        """Unique among the candidates."""

    def standing(self, now: float) -> Standing:
        """How it stands at `now`, in monotonic seconds."""


C = TypeVar("C", bound=Candidate)


def choose(
    eligible: Sequence[C], *, now: float, random: Callable[[], float], excluded: Collection[str] = ()
) -> C | None:
    """Return one of the eligible candidates whose id is not excluded, or None if there is none.

    `random` returns floats in [0, 1), as `random.random` does.
    """
    pool = [candidate for candidate in eligible if candidate.id not in excluded] if excluded else eligible
    count = len(pool)
    if count < 2:
        return pool[0] if count else None
    first = int(random() * count)
    second = int(random() * (count - 1))
    second += second >= first
    one, other = pool[first], pool[second]
    return one if better(one.standing(now), other.standing(now)) else other


def choose_near(
    near: Sequence[C],
    far: Sequence[C],
    *,
    spillover: float,
    now: float,
    random: Callable[[], float],
    excluded: Collection[str] = (),
) -> C | None:
    """Return the better of two near candidates, unless it costs more than `spillover` times the better far one.

    So near ones are used until they are busier than far ones by that ratio, and then both grow busier together.
    """
    here = choose(near, now=now, random=random, excluded=excluded)
    if not far:
        return here
    there = choose(far, now=now, random=random, excluded=excluded)
    if here is None or there is None:
        return here or there
    return here if better(here.standing(now), there.standing(now), spillover) else there
