"""Strikes in the order of their plan, one track beside the other, as long as the fleet can take another one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from copydesk.chaos.kinds import SHAPES, Track
from copydesk.chaos.schedule import Strike
from copydesk.chaos.strikes import Arena, NobodyError, strike

PATIENCE_S = 45.0
"""How long a fault of a pod waits for the pods to be whole. Then it is left out: of two, one may be broken."""
LOOK_S = 0.5


class Struck(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a planned fault: from second `began` to `ended`; or why it was `left_out`."""

    planned: Strike
    began: float
    ended: float
    left_out: str = ""


@dataclass(slots=True)
class Striking:
    """Carries out a plan; `whole` says which pods are not in service, `clock` the second of the run."""

    arena: Arena
    clock: Callable[[], float]
    missing: Callable[[], Awaitable[tuple[str, ...]]]
    until: float
    struck: list[Struck] = field(default_factory=list)
    _on: list[Strike] = field(default_factory=list)

    @property
    def now_on(self) -> tuple[Strike, ...]:
        """The faults that are on at the moment."""
        return tuple(self._on)

    async def carry_out(self, strikes: Sequence[Strike]) -> None:
        """Carry out all of them; cancelled, undo what is on."""
        tracks = ([one for one in strikes if SHAPES[one.kind].track is track] for track in Track)
        async with asyncio.TaskGroup() as group:
            for track in tracks:
                group.create_task(self._follow(track))

    async def _follow(self, strikes: Sequence[Strike]) -> None:
        for order in strikes:
            await asyncio.sleep(max(0.0, order.at - self.clock()))
            why = await self._hindrance(order)
            if why:
                self.struck.append(Struck(planned=order, began=self.clock(), ended=self.clock(), left_out=why))
            else:
                await self._strike(order)

    async def _hindrance(self, order: Strike) -> str:
        """Say why a fault cannot strike now; wait until it can, for a while."""
        if SHAPES[order.kind].track is Track.CONTROL:
            return ""
        end = self.clock() + PATIENCE_S
        while missing := await self.missing():
            if self.clock() >= end:
                return f"{', '.join(missing)} not in service"
            await asyncio.sleep(LOOK_S)
        return "" if self.clock() + order.seconds <= self.until else "too late for it to be over in time"

    async def _strike(self, order: Strike) -> None:
        began, why = self.clock(), ""
        self._on.append(order)
        try:
            await strike(self.arena, order)
        except NobodyError as error:
            why = str(error)
        finally:
            self._on.remove(order)
            self.struck.append(Struck(planned=order, began=began, ended=self.clock(), left_out=why))
