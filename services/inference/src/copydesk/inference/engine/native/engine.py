"""The native engine: continuous batching over a slot cache.

Requests join and leave between steps. Nothing is ever computed twice: a running request keeps its slot until
it ends, so a full engine makes newcomers wait instead of evicting anyone.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from copydesk.common.rpc.frames import Load, Priority
from copydesk.inference.engine.interface import (
    EmptyPromptError,
    Finish,
    GenerateTokens,
    InvalidMaxTokensError,
    OnDone,
    PromptTooLongError,
    QueueFullError,
    UnknownTokenError,
)
from copydesk.inference.engine.native.generation import Generation, Limits
from copydesk.inference.engine.native.layout import Run
from copydesk.inference.engine.native.schedule import admissions, overdue, plan

_SMOOTHING = 0.1  # weight of the latest step in the reported mean: about the last ten count
_Ended = list[tuple[Generation, Finish]]


class Runner(Protocol):
    """What computes a step: a device, or in tests a table."""

    def run(self, runs: Sequence[Run]) -> dict[int, list[int]]:
        """Run one step; return by slot the next token after each of a run's last `samples` tokens."""
        ...


class NativeEngine:
    """An `Engine` over a runner; see that protocol for what the methods promise.

    `clock` only measures how long steps take, in seconds.
    """

    def __init__(
        self,
        runner: Runner,
        *,
        vocabulary: int,
        slots: int,
        context: int,
        queue: int,
        prefill_tokens: int,
        draft_tokens: int,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.context = context
        self.capacity = slots
        self.queue = queue
        self._limits = Limits(context, vocabulary)
        self._runner = runner
        self._prefill_tokens = prefill_tokens
        self._draft_tokens = draft_tokens
        self._clock = clock
        self._lock = threading.Lock()  # over everything below; never held while the runner or a callback runs
        self._ids = itertools.count(1)
        self._free = list(range(slots))
        self._waiting: dict[int, Generation] = {}
        self._running: dict[int, Generation] = {}
        self._cancelled: dict[int, Generation] = {}
        self._step_ms = 0.0

    def submit(self, request: GenerateTokens, *, deadline: float, priority: Priority, on_done: OnDone) -> int:
        """Queue a request, or raise a `RequestError`."""
        self._check(request)
        with self._lock:
            if len(self._waiting) >= self.queue + len(self._free):
                raise QueueFullError(self.queue)
            request_id = next(self._ids)
            self._waiting[request_id] = Generation(request_id, request, deadline, priority, on_done, self._limits)
            return request_id

    def cancel(self, request_id: int) -> None:
        """Mark a request, so that the next step ends it."""
        with self._lock:
            generation = self._waiting.get(request_id) or self._running.get(request_id)
            if generation is not None:
                self._cancelled[request_id] = generation

    def step(self, now: float) -> bool:
        """End what is cancelled or late, admit, run one step, deliver what finished."""
        with self._lock:
            ended = self._sweep(now)
            self._admit()
            runs = plan(self._running.values(), self._prefill_tokens, self._draft_tokens)
        _deliver(ended)
        if runs:
            self._advance(runs)
        with self._lock:
            return bool(self._waiting or self._running)

    def load(self) -> Load:
        """How busy the engine is."""
        with self._lock:
            return Load(
                running=len(self._running),
                queued=len(self._waiting),
                capacity=self.capacity,
                step_ms=self._step_ms,
            )

    def _check(self, request: GenerateTokens) -> None:
        if not request.prompt:
            raise EmptyPromptError
        if len(request.prompt) >= self.context:
            raise PromptTooLongError(len(request.prompt), self.context - 1)
        if request.max_tokens < 1:
            raise InvalidMaxTokensError(request.max_tokens)
        for token in (min(request.prompt), max(request.prompt)):
            if not 0 <= token < self._limits.vocabulary:
                raise UnknownTokenError(token, self._limits.vocabulary)

    def _sweep(self, now: float) -> _Ended:
        ended = [(generation, Finish.CANCELLED) for generation in self._cancelled.values()]
        self._cancelled.clear()
        for generation, _ in ended:
            self._release(generation)
        for generations in (self._waiting, self._running):
            for generation in overdue(generations.values(), now):
                self._release(generation)
                ended.append((generation, Finish.DEADLINE))
        return ended

    def _admit(self) -> None:
        if not self._free:
            return
        for generation in admissions(self._waiting.values(), len(self._free)):
            del self._waiting[generation.id]
            # The lowest slot, so that live ones stay neighbours and attention reads them in place.
            generation.slot = heapq.heappop(self._free)
            self._running[generation.id] = generation

    def _advance(self, runs: Sequence[Run]) -> None:
        started = self._clock()
        tokens = self._runner.run(runs)
        elapsed_ms = (self._clock() - started) * 1000.0
        with self._lock:
            self._step_ms += (_SMOOTHING if self._step_ms else 1.0) * (elapsed_ms - self._step_ms)
            ended = self._apply(runs, tokens)
        _deliver(ended)

    def _apply(self, runs: Sequence[Run], tokens: dict[int, list[int]]) -> _Ended:
        ended: _Ended = []
        for run in runs:
            generation = self._running[run.request_id]
            finish = generation.advance(run, tokens[run.slot] if run.samples else ())
            if finish is not None:
                self._release(generation)
                ended.append((generation, finish))
        return ended

    def _release(self, generation: Generation) -> None:
        """Forget a request, wherever it stands, and free its slot if it has one."""
        self._cancelled.pop(generation.id, None)
        self._waiting.pop(generation.id, None)
        if self._running.pop(generation.id, None) is not None:
            heapq.heappush(self._free, generation.slot)


def _deliver(ended: _Ended) -> None:
    for generation, finish in ended:
        generation.finish(finish)
