"""How long a newcomer would have to wait: decides whether it is worth taking in."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Crowd:
    """What a newcomer finds: `ahead` wait and go first, of `slots` there are `free`.

    Where the cache is full before the slots are, `slots` and `free` are as many as it has room for.
    `request_seconds` is for how long a request ran of late, its wait not counted; 0 while nothing is known.
    """

    ahead: int
    free: int
    slots: int
    request_seconds: float


def seconds_to_answer(crowd: Crowd) -> float:
    """Return after how many seconds a newcomer would likely be answered, or 0 where it would run at once.

    While all slots are taken one of them gets free every `request_seconds / slots`. What would run at once is
    never turned away for a forecast: it may be shorter than others.
    """
    if crowd.free > crowd.ahead:
        return 0.0
    turns = (crowd.ahead - crowd.free + 1) / crowd.slots
    return crowd.request_seconds * (turns + 1)
