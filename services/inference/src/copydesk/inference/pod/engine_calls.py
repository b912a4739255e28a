"""From RPC calls to the engine and back."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

import msgspec

from copydesk.common.rpc import InboundCall
from copydesk.common.rpc.frames import Fault, Load, Status
from copydesk.common.tracing import Span, tracing
from copydesk.inference.engine import (
    AnyEngine,
    DeadlineUnreachableError,
    Finish,
    GeneratedTokens,
    GenerateTokens,
    OverloadedError,
    QueueFullError,
    RequestError,
)
from copydesk.inference.pod.metrics import EngineMetrics
from copydesk.inference.pod.step_loop import Steps

_SMOOTHING = 0.1
_SHORTEST_RETRY_MS = 20
_LONGEST_RETRY_MS = 10_000


def retry_after_ms(load: Load, request_seconds: float) -> int:
    """Return when it is worth trying again: once half of those that wait have had their turn."""
    rounds = load.queued / (2 * max(load.capacity, 1))
    return min(_LONGEST_RETRY_MS, max(_SHORTEST_RETRY_MS, round(1000 * request_seconds * rounds)))


class EngineCalls:
    """Answers each RPC call with what the engine makes of it; lives on the event loop."""

    def __init__(
        self,
        engine: AnyEngine,
        steps: Steps,
        metrics: EngineMetrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = engine
        self._steps = steps
        self._metrics = metrics
        self._clock = clock
        self._decoder = msgspec.msgpack.Decoder(GenerateTokens)
        self._encoder = msgspec.msgpack.Encoder()
        self._request_seconds = 0.0

    def handle(self, call: InboundCall) -> None:
        """Take one call; the handler of the engine's RPC server."""
        try:
            request = self._decoder.decode(call.payload)
        except msgspec.DecodeError as error:
            call.fail(Status.INVALID, Fault("bad_payload", str(error)))
            return
        if call.remaining_ms() <= 0:
            call.fail(Status.DEADLINE_EXCEEDED, Fault("deadline_exceeded", "it expired on its way to the engine"))
            return
        self._submit(call, request)

    def _submit(self, call: InboundCall, request: GenerateTokens) -> None:
        span = tracing.start("engine", call.trace, priority=call.priority.name.lower())
        try:
            self._require_time(call)
            request_id = self._engine.submit(
                request,
                deadline=call.deadline,
                priority=call.priority,
                on_done=self._steps.on_loop(functools.partial(self._finish, call, self._clock(), span)),
                on_tokens=self._steps.on_loop(functools.partial(self._stream, call)) if request.stream else None,
            )
        except RequestError as error:
            self._turn_away(call, error)
            if span is not None:
                span.end(error.code)
            return
        call.on_cancel = functools.partial(self._cancel, request_id)
        self._steps.wake()

    def _require_time(self, call: InboundCall) -> None:
        """Refuse at once what would only wait for its deadline, and make others wait with it."""
        wait, remaining = self._engine.outlook(call.priority), call.remaining_ms() / 1000
        if wait > remaining:
            raise DeadlineUnreachableError(wait, remaining)

    def _turn_away(self, call: InboundCall, error: RequestError) -> None:
        if isinstance(error, OverloadedError):
            self._refuse(call, error)
        else:
            call.fail(Status.INVALID, Fault(error.code, str(error)))

    def _refuse(self, call: InboundCall, error: OverloadedError) -> None:
        retry = retry_after_ms(self._engine.load(), self._request_seconds)
        call.fail(Status.OVERLOADED, Fault(error.code, str(error), retry))

    def _stream(self, call: InboundCall, tokens: list[int]) -> None:
        call.chunk(self._encoder.encode(tokens))

    def _cancel(self, request_id: int) -> None:
        self._engine.cancel(request_id)
        self._steps.wake()

    def _finish(self, call: InboundCall, began: float, span: Span | None, result: GeneratedTokens) -> None:
        if span is not None:
            _end(span, result)
        if result.finish is Finish.DEADLINE:
            call.fail(Status.DEADLINE_EXCEEDED, Fault("deadline_exceeded", "it expired in the engine"))
            return
        if result.finish is Finish.CANCELLED:
            call.fail(Status.CANCELLED, Fault("cancelled", "the request was cancelled"))
            return
        if result.finish is Finish.FAILED:
            call.fail(Status.INTERNAL, Fault("engine_failed", "the engine could not compute it; its log says why"))
            return
        if result.finish is Finish.DISPLACED:
            self._refuse(call, QueueFullError(self._engine.queue))
            return
        self._request_seconds += _SMOOTHING * (self._clock() - began - self._request_seconds)
        self._metrics.answered(result)
        call.reply(self._encoder.encode(result))


def _end(span: Span, result: GeneratedTokens) -> None:
    span.end(
        finish=result.finish.value,
        prompt_tokens=result.prompt_tokens,
        completion_tokens=result.completion_tokens,
        passes=result.passes,
        drafted=result.drafted,
        accepted=result.accepted,
    )
