"""The native engine in Python: continuous batching over a slot cache.

It is the reference of the compiled one (`compiled_engine`), which decides the same, and what runs where there is
no compiler. Requests join and leave between steps. Nothing is ever computed twice: a running request keeps its
slot until it ends, so a full engine makes newcomers wait instead of evicting anyone.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable, Sequence

from copydesk.common.rpc.frames import Load, Priority
from copydesk.inference.engine.intake import check
from copydesk.inference.engine.interface import CacheUse, Finish, GenerateTokens, OnDone, OnTokens, QueueFullError
from copydesk.inference.engine.native.devices import Runner
from copydesk.inference.engine.native.generation import Generation, Limits, room_in_cache
from copydesk.inference.engine.native.layout import Run, StepResult
from copydesk.inference.engine.native.sampling import choose
from copydesk.inference.engine.native.schedule import admissions, displaced, overdue, plan
from copydesk.inference.engine.outlook import Crowd, seconds_to_answer

_SMOOTHING = 0.1  # weight of the latest step in the reported mean: about the last ten count
_Ended = list[tuple[Generation, Finish]]
_Made = list[tuple[Generation, list[int]]]


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
        cache_tokens: int | None = None,
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
        self._cache_tokens = room_in_cache(cache_tokens, slots, context)
        self._cache_left = self._cache_tokens  # what no running request has reserved
        self._waiting: dict[int, Generation] = {}
        self._running: dict[int, Generation] = {}
        self._cancelled: dict[int, Generation] = {}
        self._displaced: _Ended = []
        self._step_ms = 0.0
        self._request_seconds = 0.0

    def submit(
        self,
        request: GenerateTokens,
        *,
        deadline: float,
        priority: Priority,
        on_done: OnDone,
        on_tokens: OnTokens | None = None,
    ) -> int:
        """Queue a request, or raise a `RequestError`."""
        check(request, context=self._limits.context, vocabulary=self._limits.vocabulary)
        with self._lock:
            request_id = next(self._ids)
            newcomer = Generation(request_id, request, deadline, priority, on_done, self._limits, on_tokens)
            if self._is_full(newcomer):
                self._make_room(priority)
            self._waiting[request_id] = newcomer
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

    def cache_use(self) -> CacheUse:
        """How much of the cache is taken."""
        with self._lock:
            return CacheUse(self._cache_tokens - self._cache_left, self._cache_tokens)

    def outlook(self, priority: Priority) -> float:
        """After how many seconds a newcomer would likely be answered."""
        with self._lock:
            ahead = sum(generation.priority <= priority for generation in self._waiting.values())
            free, slots = len(self._free), self.capacity
            admissible = len(self._admissible())
            if admissible < min(free, len(self._waiting)):  # for want of room in the cache
                free, slots = admissible, max(1, len(self._running) + admissible)
            return seconds_to_answer(Crowd(ahead, free, slots, self._request_seconds))

    def _admissible(self) -> list[Generation]:
        return admissions(self._waiting.values(), len(self._free), self._cache_left)

    def _is_full(self, newcomer: Generation) -> bool:
        admissible = self._admissible()
        left = self._cache_left - sum(generation.reserve for generation in admissible)
        all_run = len(admissible) == len(self._waiting) < len(self._free)
        if all_run and newcomer.reserve <= left:
            return False
        return len(self._waiting) - len(admissible) >= self.queue

    def _make_room(self, priority: Priority) -> None:
        last = displaced(self._waiting.values(), priority)
        if last is None:
            raise QueueFullError(self.queue)
        self._release(last)
        self._displaced.append((last, Finish.DISPLACED))

    def _sweep(self, now: float) -> _Ended:
        ended, self._displaced = self._displaced, []
        ended += [(generation, Finish.CANCELLED) for generation in self._cancelled.values()]
        for generation in list(self._cancelled.values()):
            self._release(generation)
        for generations in (self._waiting, self._running):
            for generation in overdue(generations.values(), now):
                self._release(generation)
                ended.append((generation, Finish.DEADLINE))
        return ended

    def _admit(self) -> None:
        if not self._free:
            return
        for generation in self._admissible():
            del self._waiting[generation.id]
            self._cache_left -= generation.reserve
            # The lowest slot, so that live ones stay neighbours and attention reads them in place.
            generation.slot = heapq.heappop(self._free)
            generation.admitted = self._clock()
            self._running[generation.id] = generation

    def _advance(self, runs: Sequence[Run]) -> None:
        started = self._clock()
        result = self._runner.run(runs)
        chosen = [self._choose(run, result) for run in runs]
        now = self._clock()
        with self._lock:
            self._step_ms = _smoothed(self._step_ms, (now - started) * 1000.0)
            streamed, ended = self._apply(runs, chosen, now)
        for generation, tokens in streamed:
            generation.stream(tokens)
        _deliver(ended)

    def _choose(self, run: Run, result: StepResult) -> Sequence[int]:
        if not run.scores:
            return result.tokens[run.slot] if run.samples else ()
        generation = self._running[run.request_id]
        request = generation.request
        return choose(
            result.scores[run.slot],
            request.sampling,
            prompt=request.prompt,
            generated=generation.tokens,
            draft=run.drafted,
        )

    def _apply(self, runs: Sequence[Run], chosen: Sequence[Sequence[int]], now: float) -> tuple[_Made, _Ended]:
        streamed: _Made = []
        ended: _Ended = []
        for run, tokens in zip(runs, chosen, strict=True):
            generation = self._running[run.request_id]
            before = len(generation.tokens)
            finish = generation.advance(run, tokens)
            if generation.streams and len(generation.tokens) > before:
                streamed.append((generation, generation.tokens[before:]))
            if finish is not None:
                self._request_seconds = _smoothed(self._request_seconds, now - generation.admitted)
                self._release(generation)
                ended.append((generation, finish))
        return streamed, ended

    def _release(self, generation: Generation) -> None:
        """Forget a request, wherever it stands, and free its slot if it has one."""
        self._cancelled.pop(generation.id, None)
        self._waiting.pop(generation.id, None)
        if self._running.pop(generation.id, None) is not None:
            heapq.heappush(self._free, generation.slot)
            self._cache_left += generation.reserve


def _smoothed(mean: float, latest: float) -> float:
    return mean + (_SMOOTHING if mean else 1.0) * (latest - mean)


def _deliver(ended: _Ended) -> None:
    for generation, finish in ended:
        generation.finish(finish)
