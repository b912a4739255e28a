"""Runs an engine that steps by itself, and brings what happened to the event loop.

A thread does nothing but sit in the engine, outside the interpreter's lock. What the steps made is taken on the
event loop, in one call for however many of them it was, while the next one already computes.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from typing import TypeVar

from copydesk.inference.engine import SelfStepping

Result = TypeVar("Result")


class SelfSteppingLoop:
    """The same to its owner as a `StepLoop`, which see."""

    def __init__(
        self,
        engine: SelfStepping,
        *,
        loop: asyncio.AbstractEventLoop,
        on_crash: Callable[[Exception], None],
        on_step: Callable[[float], object],
    ) -> None:
        self._engine = engine
        self._loop = loop
        self._on_crash = on_crash
        self._on_step = on_step
        # A daemon, so that a step that never returns cannot keep the process from ending.
        self._thread = threading.Thread(target=self._run, name="engine-steps", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._loop.add_reader(self._engine.event_fd, self._deliver)
        self._thread.start()

    def wake(self) -> None:
        """The engine needs no waking."""

    def stop(self, timeout: float) -> bool:
        """End after the present step; false if that takes more than `timeout` seconds."""
        self._engine.halt()
        self._thread.join(timeout)
        self._loop.remove_reader(self._engine.event_fd)
        return not self._thread.is_alive()

    def on_loop(self, callback: Callable[[Result], None]) -> Callable[[Result], None]:
        """Callbacks come on the event loop as it is."""
        return callback

    def step_age(self) -> float:
        """Return for how many seconds the present step has been running; 0 between steps."""
        return self._engine.step_age()

    def _run(self) -> None:
        try:
            self._engine.run()
        except Exception as error:
            self._loop.call_soon_threadsafe(self._on_crash, error)

    def _deliver(self) -> None:
        os.eventfd_read(self._engine.event_fd)
        self._engine.deliver(self._on_step)
