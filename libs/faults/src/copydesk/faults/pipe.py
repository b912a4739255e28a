"""One way of one connection: bytes in at one end, out at the other, as the weather lets them."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from copydesk.faults.weather import Condition

CHUNK = 64 * 1024
UNDERWAY = 64
"""Chunks that may be on the way at once; a sender with more waits, as it does for a full socket."""
SLICES_S = 20.0
"""Into how many writes a second a narrow link cuts its bytes."""


class Sky:
    """The condition that holds now, and word of each change; `forgotten` connections have no far end any more."""

    def __init__(self, look: Callable[[], Condition]) -> None:
        self._look = look
        self._changed = asyncio.Event()
        self.forgotten = False

    @property
    def condition(self) -> Condition:
        """How it is now."""
        return self._look()

    def tell(self) -> None:
        """Wake those that wait for better weather."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def passable(self) -> None:
        """Return once bytes may pass."""
        while self.condition.stalled:
            await self._changed.wait()


async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, sky: Sky) -> None:
    """Carry bytes from `reader` to `writer` until the end, which is passed on as a half-close.

    Raises:
        OSError: One of the connections broke.
    """
    underway: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(UNDERWAY)
    async with asyncio.TaskGroup() as group:
        group.create_task(_take_in(reader, underway))
        group.create_task(_let_out(underway, writer, sky))


async def _take_in(reader: asyncio.StreamReader, underway: asyncio.Queue[tuple[float, bytes]]) -> None:
    clock = asyncio.get_running_loop().time
    data = b"-"
    while data:
        data = await reader.read(CHUNK)
        await underway.put((clock(), data))


async def _let_out(underway: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter, sky: Sky) -> None:
    clock = asyncio.get_running_loop().time
    while True:
        came, data = await underway.get()
        await asyncio.sleep(max(0.0, came + sky.condition.delay_s - clock()))
        await sky.passable()
        if sky.forgotten:
            continue
        if not data:
            writer.write_eof()
            return
        await _write(data, writer, sky)


async def _write(data: bytes, writer: asyncio.StreamWriter, sky: Sky) -> None:
    while data and not sky.forgotten:
        await sky.passable()
        rate = sky.condition.bytes_per_s
        if math.isinf(rate):
            part, data = data, b""
        else:
            size = max(1, int(rate / SLICES_S))
            part, data = data[:size], data[size:]
            await asyncio.sleep(len(part) / rate)
        writer.write(part)
        await writer.drain()
