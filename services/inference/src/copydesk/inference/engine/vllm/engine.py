"""The engine over vLLM: who waits and who runs is decided here, as in the native engine; vLLM computes.

vLLM gets no more requests than it runs side by side, and a few beside them, so that a place that becomes free is
taken at the next step. All others wait here, where a more urgent one can go before them, and where their deadlines
end them at no cost.
"""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field

from copydesk.common.rpc.frames import Load, Priority
from copydesk.common.telemetry import get_logger
from copydesk.inference.engine.intake import check
from copydesk.inference.engine.interface import (
    Finish,
    GeneratedTokens,
    GenerateTokens,
    OnDone,
    OnTokens,
    QueueFullError,
)
from copydesk.inference.engine.outlook import Crowd, seconds_to_answer
from copydesk.inference.engine.vllm.client import Acceptance, Client, CoreLostError, Ended, Part
from copydesk.inference.engine.vllm.line import Line
from copydesk.inference.engine.vllm.parameters import passes, require_drawable, sampling_parameters

_log = get_logger(__name__)

_SMOOTHING = 0.1  # weight of the latest step or request in a reported mean: about the last ten count
_SPARE = 16  # for so many slots, one request more is handed over
_WATCH_SECONDS = 0.1
_WARM_UP = GenerateTokens(prompt=[0], max_tokens=2, stop_ids=[])
_FINISHES = {Ended.STOP: Finish.STOP, Ended.LENGTH: Finish.LENGTH}


@dataclass(slots=True, eq=False)
class _Taken:
    """A request; `ending` is why it is about to end."""

    id: int
    request: GenerateTokens
    priority: Priority
    on_done: OnDone
    on_tokens: OnTokens | None
    tokens: list[int] = field(default_factory=list)
    timer: asyncio.TimerHandle | None = None
    admitted: float | None = None
    ending: Finish | None = None
    ended: bool = False

    @property
    def name(self) -> str:
        """What it is called to vLLM."""
        return str(self.id)


class VllmEngine:
    """A `LoopEngine` over a client of vLLM; see that protocol for what the methods promise.

    `drafts` says whether vLLM guesses tokens, which rules out some ways to sample.
    """

    def __init__(self, client: Client, *, context: int, slots: int, queue: int, drafts: bool) -> None:
        self.context = context
        self.capacity = slots
        self.queue = queue
        self._loop: asyncio.AbstractEventLoop
        self._broken: asyncio.Future[Exception]
        self._client = client
        self._drafts = drafts
        self._ids = itertools.count(1)
        self._taken: dict[int, _Taken] = {}
        self._line = Line()
        self._tasks: set[asyncio.Task[None]] = set()
        self._handed = 0
        self._since = 0.0  # when the last step was heard of, or vLLM got something to do after having nothing
        self._silence = 0.0  # for how long it had something to do before that, and nothing was heard
        self._step_ms = 0.0
        self._request_seconds = 0.0
        self._on_step: Callable[[float], object] = float  # until somebody wants to know

    async def open(self) -> None:
        """Take the running event loop for one's own, and have two tokens made."""
        self._loop = asyncio.get_running_loop()
        self._broken = self._loop.create_future()
        self._client.on_step(self._stepped)
        parameters = sampling_parameters(_WARM_UP, context=self.context, vocabulary=self._client.vocabulary)
        async for _ in self._client.generate("warm-up", _WARM_UP.prompt, parameters, stream=False):
            pass

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
        check(request, context=self.context, vocabulary=self._client.vocabulary)
        require_drawable(request.sampling, drafts=self._drafts)
        if len(self._taken) >= self.capacity + self.queue:
            self._make_room(priority)
        taken = _Taken(next(self._ids), request, priority, on_done, on_tokens if request.stream else None)
        if math.isfinite(deadline):
            taken.timer = self._loop.call_at(deadline, self._end_early, taken, Finish.DEADLINE)
        self._taken[taken.id] = taken
        self._line.add(taken.id, priority)
        self._admit()
        return taken.id

    def cancel(self, request_id: int) -> None:
        """End a request."""
        taken = self._taken.get(request_id)
        if taken is not None:
            self._end_early(taken, Finish.CANCELLED)

    def load(self) -> Load:
        """How busy the engine is."""
        running = self._running()
        return Load(running, len(self._taken) - running, self.capacity, self._step_ms)

    def outlook(self, priority: Priority) -> float:
        """After how many seconds a newcomer would likely be answered."""
        running = self._running()
        ahead = self._line.ahead_of(priority) + self._handed - running
        return seconds_to_answer(Crowd(ahead, self.capacity - running, self.capacity, self._request_seconds))

    async def run(self, on_step: Callable[[float], object]) -> None:
        """Watch vLLM until cancelled; raises what broke it."""
        self._on_step = on_step
        while not self._client.dead:
            await asyncio.wait({self._broken}, timeout=_WATCH_SECONDS)
            if self._broken.done():
                raise self._broken.result()
        raise CoreLostError

    def step_age(self) -> float:
        """For how many seconds vLLM has been silent although it has requests."""
        return self._silence + self._loop.time() - self._since if self._handed else 0.0

    def close(self, timeout: float) -> bool:
        """End vLLM's processes; requests that have not ended are not answered any more."""
        for task in self._tasks:
            task.cancel()
        self._client.close(timeout)
        return True

    def _running(self) -> int:
        return min(self._handed, self.capacity, len(self._taken))

    def _make_room(self, priority: Priority) -> None:
        last = self._line.displaced_by(priority)
        if last is None:
            raise QueueFullError(self.queue)
        self._end_early(self._taken[last], Finish.DISPLACED)

    def _admit(self) -> None:
        while self._handed < self.capacity + self.capacity // _SPARE:
            request_id = self._line.take()
            if request_id is None:
                return
            if not self._handed:
                self._since = self._loop.time()
            self._handed += 1
            task = self._loop.create_task(self._follow(self._taken[request_id]))
            self._tasks.add(task)
            task.add_done_callback(self._followed)

    def _followed(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._handed -= 1
        if not self._handed:  # those who ended at their deadlines must not hide that nobody answers
            self._silence += self._loop.time() - self._since
        if not task.cancelled():
            self._admit()

    async def _follow(self, taken: _Taken) -> None:
        """Have one request answered by vLLM."""
        if taken.ending is not None:
            self._end(taken, taken.ending)
            return
        request = taken.request
        taken.admitted = self._loop.time()
        parameters = sampling_parameters(request, context=self.context, vocabulary=self._client.vocabulary)
        stream = taken.on_tokens is not None
        try:
            async for part in self._client.generate(taken.name, request.prompt, parameters, stream=stream):
                self._take(taken, part)
        except CoreLostError as error:  # whoever waits for this request loses the connection
            if not self._broken.done():
                self._broken.set_result(error)
            return
        except Exception:
            _log.exception("vllm_request_failed", request=taken.id)
        self._end(taken, taken.ending or Finish.FAILED)

    def _take(self, taken: _Taken, part: Part) -> None:
        stopped = part.ended is Ended.STOP
        tokens = part.tokens[:-1] if stopped else part.tokens
        taken.tokens += tokens
        if taken.on_tokens is not None and tokens and taken.ending is None:
            taken.on_tokens(tokens)
        if part.ended is None:
            return
        finish = taken.ending or _FINISHES.get(part.ended, Finish.FAILED)
        if finish in _FINISHES.values() and taken.admitted is not None:
            self._request_seconds = _smoothed(self._request_seconds, self._loop.time() - taken.admitted)
        self._end(taken, finish, part, made=len(taken.tokens) + stopped)

    def _end_early(self, taken: _Taken, finish: Finish) -> None:
        """End a request that waits at the next turn of the loop, and one that runs as soon as vLLM lets it go."""
        if taken.ending is not None:
            return
        taken.ending = finish
        if self._line.discard(taken.id):
            self._forget(taken)
            self._loop.call_soon(self._end, taken, finish)
        elif taken.admitted is not None:
            self._keep(self._client.abort(taken.name))

    def _keep(self, work: Coroutine[object, object, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _forget(self, taken: _Taken) -> None:
        self._taken.pop(taken.id, None)
        if taken.timer is not None:
            taken.timer.cancel()

    def _end(self, taken: _Taken, finish: Finish, last: Part | None = None, *, made: int = 0) -> None:
        if taken.ended:
            return
        taken.ended = True
        self._forget(taken)
        acceptance = last.acceptance if last is not None else Acceptance()
        taken.on_done(
            GeneratedTokens(
                tokens=taken.tokens,
                finish=finish,
                prompt_tokens=len(taken.request.prompt),
                completion_tokens=made,
                passes=passes(made, acceptance) if made else 0,
                drafted=acceptance.drafted,
                accepted=acceptance.accepted,
                stop_id=last.stop_id if last is not None and finish is Finish.STOP else None,
            )
        )

    def _stepped(self) -> None:
        now = self._loop.time()
        seconds, self._since = now - self._since, now
        self._silence = 0.0
        if self._handed:
            self._step_ms = _smoothed(self._step_ms, seconds * 1000.0)
            self._on_step(seconds)


def _smoothed(mean: float, latest: float) -> float:
    return mean + (_SMOOTHING if mean else 1.0) * (latest - mean)
