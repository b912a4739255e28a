"""The native engine with its scheduling in C++ (`compiled/csrc/engine.hpp`), over any device.

It steps on a thread of its own that the interpreter's lock does not hold up. What happened meanwhile is taken from
it in one call, whenever the owner comes round to it: the next step has begun by then (asynchronous scheduling).
"""

from __future__ import annotations

import ctypes
import itertools
import os
import time
import weakref
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from copydesk.common.rpc.frames import Load, Priority
from copydesk.inference.engine.intake import check
from copydesk.inference.engine.interface import (
    CacheUse,
    EngineBrokenError,
    Finish,
    GeneratedTokens,
    GenerateTokens,
    OnDone,
    OnTokens,
    QueueFullError,
)
from copydesk.inference.engine.native.compiled_types import (
    CHOOSER,
    CdEngineOptions,
    CdLimits,
    CdRequest,
    EngineFunctions,
    engine_functions,
)
from copydesk.inference.engine.native.devices import Device, OverlappingDevice
from copydesk.inference.engine.native.generation import Limits, room_in_cache
from copydesk.inference.engine.native.sampling import choose
from copydesk.inference.engine.outlook import Crowd, seconds_to_answer

_FINISHED, _MADE, _STEP = 0, 1, 2
_FINISHES = (Finish.STOP, Finish.LENGTH, Finish.CANCELLED, Finish.DEADLINE, Finish.DISPLACED)


@dataclass(slots=True)
class _Taken:
    """A request that has not ended."""

    request: GenerateTokens
    on_done: OnDone
    on_tokens: OnTokens | None


class CompiledEngine:
    """An `Engine` that can also run by itself: see `SelfStepping` for that half.

    `asynchronous` says whether a step begins before the results of the one before it have been dealt with, and, if
    the device overlaps with its caller, before they are there.
    """

    def __init__(
        self,
        library: ctypes.CDLL,
        device: Device,
        *,
        vocabulary: int,
        slots: int,
        context: int,
        queue: int,
        cache_tokens: int | None = None,
        prefill_tokens: int,
        draft_tokens: int,
        asynchronous: bool = True,
    ) -> None:
        self.context = context
        self.capacity = slots
        self.queue = queue
        self._limits = Limits(context, vocabulary)
        self._device = device
        self._functions = engine_functions(library)
        self._ids = itertools.count(1)
        self._taken: dict[int, _Taken] = {}
        self._failure: BaseException | None = None
        self._chooser = CHOOSER(self._choose)
        function, itself = device.device()
        begin, finish = device.overlap() if isinstance(device, OverlappingDevice) else (None, None)
        self.event_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._cache_tokens = room_in_cache(cache_tokens, slots, context)
        options = CdEngineOptions(
            slots=slots,
            queue=queue,
            cache_tokens=self._cache_tokens,
            limits=CdLimits(context, vocabulary, prefill_tokens, draft_tokens),
            device=function,
            device_self=itself,
            device_begin=begin,
            device_finish=finish,
            chooser=ctypes.cast(self._chooser, ctypes.c_void_p).value,
            chooser_self=None,
            event_fd=self.event_fd,
            asynchronous=asynchronous,
        )
        self._engine = self._functions.open(ctypes.byref(options))
        # It keeps the device, which has to be done with what is under way.
        self._release = weakref.finalize(self, _release, self._functions, self._engine, self.event_fd, device)
        self._release.atexit = False  # a thread may be stepping still

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
        request_id = next(self._ids)
        prompt, source, stops = array("i", request.prompt), _ids(request.source), _ids(request.stop_ids)
        described = CdRequest(
            id=request_id,
            deadline=deadline,
            priority=priority,
            max_tokens=min(request.max_tokens, self.context),
            scores=not request.sampling.is_greedy,
            stream=request.stream and on_tokens is not None,
            prompt_length=len(prompt),
            source_length=len(source),
            stops_length=len(stops),
            prompt=prompt.buffer_info()[0],
            source=source.buffer_info()[0],
            stops=stops.buffer_info()[0],
        )
        self._taken[request_id] = _Taken(request, on_done, on_tokens)
        if self._functions.submit(self._engine, ctypes.byref(described)):
            del self._taken[request_id]
            raise QueueFullError(self.queue)
        return request_id

    def cancel(self, request_id: int) -> None:
        """Mark a request, so that the next step ends it."""
        self._functions.cancel(self._engine, request_id)

    def step(self, now: float) -> bool:
        """End what is cancelled or late, admit, run one step, deliver what it made.

        Where the engine looks ahead, the step is begun, and what the one before it made is delivered.
        """
        busy: int = self._functions.step(self._engine, now)
        if busy < 0:
            raise self._broken(busy)
        self.deliver()
        return busy > 0 or bool(self._taken)

    def load(self) -> Load:
        """How busy the engine is."""
        running, queued, step_ms = ctypes.c_int32(), ctypes.c_int32(), ctypes.c_double()
        self._functions.load(self._engine, ctypes.byref(running), ctypes.byref(queued), ctypes.byref(step_ms))
        return Load(running.value, queued.value, self.capacity, step_ms.value)

    def cache_use(self) -> CacheUse:
        """How much of the cache is taken."""
        return CacheUse(self._cache_tokens - self._functions.cache_left(self._engine), self._cache_tokens)

    def outlook(self, priority: Priority) -> float:
        """After how many seconds a newcomer would likely be answered."""
        ahead, free, slots, seconds = ctypes.c_int32(), ctypes.c_int32(), ctypes.c_int32(), ctypes.c_double()
        found = (ctypes.byref(number) for number in (ahead, free, slots, seconds))
        self._functions.outlook(self._engine, priority, *found)
        return seconds_to_answer(Crowd(ahead.value, free.value, slots.value, seconds.value))

    def run(self) -> None:
        """Step, by the monotonic clock, for as long as there is work, and wait for more, until `halt`.

        Raises what broke it. `event_fd` becomes readable when there is something to deliver.
        """
        code = self._functions.run(self._engine)
        if code:
            raise self._broken(code)

    def halt(self) -> None:
        """Let `run` return after the present step."""
        self._functions.stop(self._engine)

    def step_age(self) -> float:
        """For how many seconds the present step has been running; 0 between steps."""
        return float(self._functions.step_age(self._engine, time.monotonic()))

    def deliver(self, on_step: Callable[[float], object] | None = None) -> None:
        """Call back for all that happened since the last call; `on_step` gets the seconds that each step took."""
        start = ctypes.POINTER(ctypes.c_int64)()
        count = self._functions.take(self._engine, ctypes.byref(start))
        events = start[:count]
        place = 0
        while place < count:
            kind = events[place]
            if kind == _STEP:
                if on_step is not None:
                    on_step(events[place + 1] * 1e-9)
                place += 2
            elif kind == _MADE:
                place = self._made(events, place)
            else:
                place = self._finished(events, place)
        self._functions.acknowledge(self._engine)

    def close(self) -> None:
        """Free what the engine holds, once the device is done with it; `run` and `step` must have returned.

        Nothing may be called after that. An engine that is forgotten is closed as well.
        """
        self._release()

    def _made(self, events: list[int], place: int) -> int:
        end = place + 3 + events[place + 2]
        taken = self._taken[events[place + 1]]
        if taken.on_tokens is not None:
            taken.on_tokens(events[place + 3 : end])
        return end

    def _finished(self, events: list[int], place: int) -> int:
        _, request_id, finish, passes, drafted, accepted, stop_id, length = events[place : place + 8]
        end = place + 8 + length
        taken = self._taken.pop(request_id)
        taken.on_done(
            GeneratedTokens(
                tokens=events[place + 8 : end],
                finish=_FINISHES[finish],
                prompt_tokens=len(taken.request.prompt),
                completion_tokens=length + (_FINISHES[finish] is Finish.STOP),
                passes=passes,
                drafted=drafted,
                accepted=accepted,
                stop_id=stop_id if stop_id >= 0 else None,
            )
        )
        return end

    def _choose(
        self,
        _self: int,
        request_id: int,
        rows: int,
        scores: Any,
        made_length: int,
        made: Any,
        draft_length: int,
        draft: Any,
        out: Any,
    ) -> int:
        """The `Chooser` of engine.hpp; an error must not leave it, so that it is kept for `run` or `step`."""
        try:
            request = self._taken[request_id].request
            table = np.ctypeslib.as_array(scores, (rows, self._limits.vocabulary))
            chosen = choose(
                table,
                request.sampling,
                prompt=request.prompt,
                generated=made[:made_length],
                draft=draft[:draft_length],
            )
            np.ctypeslib.as_array(out, (rows,))[: len(chosen)] = chosen
            return len(chosen)
        except BaseException as error:
            self._failure = error
            return -1

    def _broken(self, code: int) -> BaseException:
        return self._failure or self._device.failure() or EngineBrokenError(code)


def _release(functions: EngineFunctions, engine: int, event_fd: int, _device: Device) -> None:
    functions.close(engine)
    os.close(event_fd)


def _ids(tokens: Sequence[int]) -> array[int]:
    """As 32-bit integers; what is none, and so no token of any model, becomes -1."""
    try:
        return array("i", tokens)
    except OverflowError:
        return array("i", [token if 0 <= token < 2**31 else -1 for token in tokens])
