"""Faults made true: signals to processes of this machine, and the weather of proxies before its pods."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from copydesk.chaos.family import called, kin
from copydesk.chaos.kinds import DELAY_S, NARROW_BYTES_PER_S, Kind
from copydesk.chaos.schedule import Strike
from copydesk.chaos.thaw import thaw, thawed_anyhow
from copydesk.common.errors import CopydeskError
from copydesk.faults import CLEAR, FaultProxy, Way, Weather

SLOW_STILL_S, SLOW_MOVING_S = 0.09, 0.01
"""A process that runs a tenth of the time is ten times as slow, and looks alive whenever it is looked at."""

WEATHERS: dict[Kind, Weather] = {
    Kind.LINK_DELAY: Weather.delayed(DELAY_S),
    Kind.LINK_NARROW: Weather.narrow(NARROW_BYTES_PER_S),
    Kind.LINK_DROP: Weather.dropping(),
    Kind.LINK_ONE_WAY: Weather.one_way(Way.FORTH),
}


class NobodyError(CopydeskError):
    """The process `name`, which a fault should strike, is not running just now."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"{name} is not running")


@dataclass(frozen=True, slots=True)
class Arena:
    """A fleet on this machine: `roots` tells the pids of its processes now, by name; `names` are all that belong.

    `links` are the proxies before its pods, `pages` the addresses of metrics, by the process that tells them.
    `resized` tells which other sizes were decided so far.
    """

    roots: Callable[[], Mapping[str, int]]
    names: Sequence[str]
    links: Mapping[str, FaultProxy] = field(default_factory=dict)
    pages: Mapping[str, str] = field(default_factory=dict)
    resized: Callable[[], tuple[str, ...]] = tuple

    def pid(self, name: str) -> int:
        """Return the pid of a process; raises `NobodyError`."""
        pid = self.roots().get(name)
        if pid is None:
            raise NobodyError(name)
        return pid


async def strike(arena: Arena, order: Strike) -> None:
    """Make a fault true for as long as it shall last, and undo it, also when this is cancelled.

    Raises:
        NobodyError: There is nobody to strike.
    """
    async with _fault(arena, order):
        await asyncio.sleep(order.seconds)


@asynccontextmanager
async def _fault(arena: Arena, order: Strike) -> AsyncIterator[None]:
    kind = order.kind
    if kind in WEATHERS or kind in (Kind.LINK_HALF_OPEN, Kind.LINK_RESET):
        with _link(arena.links[order.target], kind):
            yield
        return
    pids = _victims(arena, order)
    if kind.value.endswith("-kill"):
        _signal(pids[:1], signal.SIGKILL)
        yield
        return
    async with thawed_anyhow(pids):
        if kind is not Kind.POD_SLOW:
            _signal(pids, signal.SIGSTOP)
            yield
            return
        slowing = asyncio.create_task(_slow(pids))
        try:
            yield
        finally:
            slowing.cancel()
            await asyncio.gather(slowing, return_exceptions=True)


@contextlib.contextmanager
def _link(link: FaultProxy, kind: Kind) -> Iterator[None]:
    if kind is Kind.LINK_RESET:
        link.reset()
    elif kind is Kind.LINK_HALF_OPEN:
        link.forget()
    else:
        link.weather = WEATHERS[kind]
    try:
        yield
    finally:
        link.weather = CLEAR
        link.bury()


def _victims(arena: Arena, order: Strike) -> tuple[int, ...]:
    pid = arena.pid(order.target)
    match order.kind:
        case Kind.POD_FREEZE:
            return kin(pid)
        case Kind.POD_SLOW | Kind.ENGINE_KILL | Kind.ENGINE_FREEZE:
            found = called(pid, "engine")
        case Kind.WORKER_KILL:
            found = called(pid, "worker")
        case _:
            return (pid,)
    if not found:
        raise NobodyError(order.target)
    return found


async def _slow(pids: Sequence[int]) -> None:
    try:
        while True:
            _signal(pids, signal.SIGSTOP)
            await asyncio.sleep(SLOW_STILL_S)
            thaw(pids)
            await asyncio.sleep(SLOW_MOVING_S)
    finally:
        thaw(pids)


def _signal(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
