"""Waiting for a peer's sign of life, by the time that the one who waits was there to hear it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from copydesk.common.errors import CopydeskError
from copydesk.inference.pod.lifecycle import silence_after

T = TypeVar("T")

UNTIMED = 86_400.0
"""Seconds; for signs that have a timeout of their own, which goes by the clock: here the vigil ends the wait."""

_TICKS = 10


class SilentError(CopydeskError):
    """A peer gave no sign of life for `seconds`."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(f"no sign of life for {seconds:g} s")


class Vigil:
    """Keeps account of how long a peer has been silent: `silent` seconds since it was last heard.

    A process that was itself stopped, or got no processor for seconds, wakes with every timeout behind it although
    nobody had the time to answer: a machine that was suspended, a container that was paused. So waits are cut into
    ticks, each a small part of `patience` (seconds), and one that took longer counts no more than that.
    """

    def __init__(self, patience: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.silent = 0.0
        self._tick = patience / _TICKS
        self._clock = clock

    async def attend(self, sign: Coroutine[Any, Any, T], limit: float) -> T:
        """Await `sign`, which ends the silence; whatever it raises does not.

        Raises:
            SilentError: the silence has lasted for more than `limit` seconds.
        """
        waiting = asyncio.ensure_future(sign)
        try:
            while not await self._wait(waiting, self._tick):
                if self.silent > limit:
                    raise SilentError(limit)
            answer = waiting.result()
        finally:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        self.silent = 0.0
        return answer

    async def pause(self, seconds: float) -> None:
        """Let `seconds` of silence pass, after a sign that did not come."""
        began = self._clock()
        await asyncio.sleep(seconds)
        self._count(began, seconds)

    async def _wait(self, waiting: asyncio.Future[T], seconds: float) -> bool:
        began = self._clock()
        done, _ = await asyncio.wait({waiting}, timeout=seconds)
        self._count(began, seconds)
        return bool(done)

    def _count(self, began: float, expected: float) -> None:
        self.silent = silence_after(self.silent, passed=self._clock() - began, expected=expected)
