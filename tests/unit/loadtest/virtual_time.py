"""An event loop whose clock jumps to the next timer instead of waiting for it."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import TypeVar

T = TypeVar("T")


class JumpingSelector(selectors.SelectSelector):
    """Reports readiness at once and hands the time it should have waited to `advance`."""

    def __init__(self, advance: Callable[[float], None]) -> None:
        super().__init__()
        self._advance = advance

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("nothing is left to wait for: the test hangs")
        self._advance(max(0.0, timeout))
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """Starts at 0 seconds."""

    def __init__(self) -> None:
        self._now = 0.0
        super().__init__(JumpingSelector(self.advance))

    def time(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        """Let time pass as if the process had been busy."""
        self._now += seconds


def now() -> float:
    return asyncio.get_running_loop().time()


def be_busy(seconds: float) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.advance(seconds)


def run_virtually(main: Coroutine[None, None, T]) -> T:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
