"""Whether the machine ran at all: a process that only has to wake up, and cannot, has been left without a core.

What a service did in such a moment says nothing of the service. A generator process, which runs before all others
where that is allowed, feels its own pulse beside sending.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

import msgspec

BEAT_S = 0.02
STALL_S = 0.1
"""A beat that is late by this and more is a stall; less is what a busy machine does all the time."""


class Stall(msgspec.Struct, frozen=True, array_like=True):
    """That from second `at` on, for `seconds`, nothing was run that was due."""

    at: float
    seconds: float

    @property
    def end(self) -> float:
        """When it was over."""
        return self.at + self.seconds


class Pulse:
    """Keeps the stalls that it felt; moments are those that `feel` is told."""

    def __init__(self) -> None:
        self.stalls: list[Stall] = []

    def feel(self, due: float, now: float) -> None:
        """Take in that a beat that was due then came now."""
        if now - due >= STALL_S:
            self.stalls.append(Stall(due, now - due))

    async def beat(self) -> None:
        """Beat until cancelled."""
        clock = asyncio.get_running_loop().time
        while True:
            due = clock() + BEAT_S
            await asyncio.sleep(BEAT_S)
            self.feel(due, clock())


def standing_still(begin: float, end: float, stalls: Iterable[Stall]) -> bool:
    """Say whether a stall fell into the time from `begin` to `end`."""
    return any(stall.at < end and begin < stall.end for stall in stalls)


def merged(stalls: Sequence[Stall]) -> tuple[Stall, ...]:
    """Return the stalls in their order, those that several processes felt at once as one."""
    found: list[Stall] = []
    for stall in sorted(stalls, key=lambda one: one.at):
        if found and stall.at <= found[-1].end:
            found[-1] = Stall(found[-1].at, max(found[-1].end, stall.end) - found[-1].at)
        else:
            found.append(stall)
    return tuple(found)
