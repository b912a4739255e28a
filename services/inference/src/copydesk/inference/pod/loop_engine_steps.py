"""Watches an engine that lives on the event loop, and says when it broke."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from copydesk.inference.engine import LoopEngine

Result = TypeVar("Result")


class LoopEngineSteps:
    """The same to its owner as a `StepLoop`, which see; there is no thread, since the steps are made elsewhere."""

    def __init__(
        self,
        engine: LoopEngine,
        *,
        loop: asyncio.AbstractEventLoop,
        on_crash: Callable[[Exception], None],
        on_step: Callable[[float], object],
    ) -> None:
        self._engine = engine
        self._loop = loop
        self._on_crash = on_crash
        self._on_step = on_step
        self._watch: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to watch."""
        self._watch = self._loop.create_task(self._run())

    def wake(self) -> None:
        """The engine needs no waking."""

    def stop(self, timeout: float) -> bool:
        """End what computes; false if that takes more than `timeout` seconds."""
        if self._watch is not None:
            self._watch.cancel()
        return self._engine.close(timeout)

    def on_loop(self, callback: Callable[[Result], None]) -> Callable[[Result], None]:
        """Callbacks come on the event loop as it is."""
        return callback

    def step_age(self) -> float:
        """Return for how many seconds nothing was heard of a step; 0 while there is nothing to do."""
        return self._engine.step_age()

    async def _run(self) -> None:
        try:
            await self._engine.run(self._on_step)
        except Exception as error:
            self._on_crash(error)
