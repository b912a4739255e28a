"""How many requests a second an engine answers: a closed loop that keeps so many of them in flight."""

from __future__ import annotations

import math
import os
import select
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from copydesk.common.rpc.frames import Priority
from copydesk.inference.engine import GeneratedTokens
from copydesk.inference.engine.native import CompiledEngine
from copydesk.inference.gpu_check.workload import Asked, in_turn

_PATIENCE_SECONDS = 30.0


@dataclass(slots=True)
class Answered:
    """What came back within `seconds`; `wrong` are answers other than those that were known."""

    seconds: float = 0.0
    requests: int = 0
    tokens: int = 0
    passes: int = 0
    wrong: int = 0

    @property
    def rate(self) -> float:
        """Requests a second."""
        return self.requests / self.seconds if self.seconds else 0.0


class StuckEngineError(RuntimeError):
    """For half a minute nothing was answered."""


@dataclass(slots=True)
class Loop:
    """Asks an engine, which a thread steps, and keeps `in_flight` requests with it."""

    engine: CompiledEngine
    asked: Sequence[Asked]
    in_flight: int
    answered: Answered = field(default_factory=Answered)
    _index: int = 0
    _heard: float = 0.0
    _failure: BaseException | None = None

    def run(self, warm_seconds: float, seconds: float) -> Answered:
        """Warm up, measure, stop and free the engine; raises what broke it."""
        thread = threading.Thread(target=self._step)
        thread.start()
        self._heard = time.monotonic()
        try:
            for _ in range(self.in_flight):
                self._submit()
            self._until(time.monotonic() + warm_seconds)
            self.answered = Answered()
            began = time.monotonic()
            self._until(began + seconds)
            while not self.answered.requests:
                self._until(time.monotonic() + 0.1)
            self.answered.seconds = time.monotonic() - began
            return self.answered
        finally:
            self.engine.halt()
            thread.join()
            self.engine.close()

    def _step(self) -> None:
        try:
            self.engine.run()
        except BaseException as error:
            self._failure = error

    def _until(self, end: float) -> None:
        poll = select.poll()
        poll.register(self.engine.event_fd, select.POLLIN)
        while (now := time.monotonic()) < end:
            if self._failure is not None:
                raise self._failure
            if now - self._heard > _PATIENCE_SECONDS:
                raise StuckEngineError(f"nothing was answered for {_PATIENCE_SECONDS:g} s")
            if poll.poll(100):
                os.eventfd_read(self.engine.event_fd)
                self.engine.deliver()
                self._heard = now

    def _submit(self) -> None:
        asked = in_turn(self.asked, self._index)
        self._index += 1

        def done(answer: GeneratedTokens) -> None:
            self.answered.requests += 1
            self.answered.tokens += answer.completion_tokens
            self.answered.passes += answer.passes
            self.answered.wrong += asked.answer is not None and tuple(answer.tokens) != asked.answer
            self._submit()

        self.engine.submit(asked.request, deadline=math.inf, priority=Priority.INTERACTIVE, on_done=done)
