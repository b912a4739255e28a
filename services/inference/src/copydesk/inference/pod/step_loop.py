"""The thread that steps the engine.

Torch releases the interpreter's lock while it computes, so that the event loop beside this thread keeps
answering pings and taking requests. What a step finished goes back to the event loop in one call.
"""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from copydesk.inference.engine import Engine

Result = TypeVar("Result")
Delivery = Callable[[], None]


class Steps(Protocol):
    """What runs an engine's steps beside the event loop."""

    def start(self) -> None:
        """Begin."""
        ...

    def wake(self) -> None:
        """Tell it that there is work or a cancellation."""
        ...

    def stop(self, timeout: float) -> bool:
        """End after the present step; false if that takes more than `timeout` seconds."""
        ...

    def on_loop(self, callback: Callable[[Result], None]) -> Callable[[Result], None]:
        """Turn a callback for the event loop into one that the engine may call."""
        ...

    def step_age(self) -> float:
        """Return for how many seconds the present step has been running; 0 between steps."""
        ...


class StepLoop:
    """Steps an engine for as long as it has work, and sleeps until `wake` otherwise.

    `on_crash` is called on the event loop with what a step raised; no step follows. `on_step` gets the duration
    of each step in seconds, on the thread. `asynchronous` says whether a step begins before the event loop has
    dealt with what the last one made.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        loop: asyncio.AbstractEventLoop,
        on_crash: Callable[[Exception], None],
        on_step: Callable[[float], object],
        asynchronous: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = engine
        self._loop = loop
        self._on_crash = on_crash
        self._on_step = on_step
        self._asynchronous = asynchronous
        self._clock = clock
        self._work = threading.Event()
        self._dealt_with = threading.Event()
        self._stopping = False
        self._finished: list[Delivery] = []
        self._step_began: float | None = None
        # A daemon, so that a step that never returns cannot keep the process from ending.
        self._thread = threading.Thread(target=self._run, name="engine-steps", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wake(self) -> None:
        """Tell the thread that there is work or a cancellation; may be called from any thread."""
        self._work.set()

    def stop(self, timeout: float) -> bool:
        """End after the present step; false if that takes more than `timeout` seconds."""
        self._stopping = True
        self._work.set()
        self._dealt_with.set()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def on_loop(self, callback: Callable[[Result], None]) -> Callable[[Result], None]:
        """Turn a callback for the event loop into one that the engine may call within a step."""
        return lambda result: self._finished.append(functools.partial(callback, result))

    def step_age(self) -> float:
        """Return for how many seconds the present step has been running; 0 between steps."""
        began = self._step_began
        return 0.0 if began is None else self._clock() - began

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._work.clear()
                if not self._step():
                    self._work.wait()
        except Exception as error:
            self._loop.call_soon_threadsafe(self._on_crash, error)

    def _step(self) -> bool:
        began = self._step_began = self._clock()
        busy = self._engine.step(began)
        self._step_began = None
        if busy or self._finished:
            self._on_step(self._clock() - began)
        if self._finished:
            batch, self._finished = self._finished, []
            self._dealt_with.clear()
            self._loop.call_soon_threadsafe(self._deliver, batch)
            if not self._asynchronous and not self._stopping:
                self._dealt_with.wait()
        return busy

    def _deliver(self, batch: list[Delivery]) -> None:
        for delivery in batch:
            delivery()
        self._dealt_with.set()
