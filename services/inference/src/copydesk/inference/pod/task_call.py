"""One request of a gateway's while a worker deals with it."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from copydesk.common.rpc import Fault, InboundCall, Response, Status
from copydesk.common.tracing import tracing
from copydesk.inference.engine import GenerateTokens
from copydesk.inference.pod.engines import Engines, Refusal
from copydesk.inference.pod.metrics import WorkerMetrics

_EXPIRED = Fault("deadline_exceeded", "it expired before it could be sent to the engine")

_encode = msgspec.msgpack.Encoder().encode


class TaskCall:
    """Ends an RPC call and counts how; on the way it asks the engine, once, for as long as somebody waits."""

    __slots__ = ("_began", "_call", "_cancel_engine", "_clock", "_metrics", "_span")

    def __init__(
        self, call: InboundCall, metrics: WorkerMetrics, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._call = call
        self._metrics = metrics
        self._clock = clock
        self._began = clock()
        self._cancel_engine: Callable[[], None] | None = None
        self._span = tracing.start("worker", call.trace, priority=call.priority.name.lower())

    def ask(
        self,
        engines: Engines,
        request: GenerateTokens,
        on_reply: Callable[[Response], None],
        on_chunk: Callable[[msgspec.Raw], None] | None = None,
    ) -> None:
        """Send a request to an engine; where that is not possible, the call fails."""
        remaining = self._call.remaining_ms()
        if remaining <= 0:
            self.fail(Status.DEADLINE_EXCEEDED, _EXPIRED)
            return
        sent = engines.send(
            _encode(request),
            deadline_ms=remaining,
            priority=self._call.priority,
            on_reply=on_reply,
            on_chunk=on_chunk,
            trace=self._span.traceparent if self._span else "",
        )
        if isinstance(sent, Refusal):
            self.fail(sent.status, sent.fault)
            return
        self._cancel_engine = sent
        self._call.on_cancel = self._cancelled

    def release_engine(self) -> None:
        """Tell the engine that its answer is not waited for any more."""
        if self._cancel_engine is not None:
            self._cancel_engine()

    def chunk(self, part: msgspec.Struct) -> None:
        """Send a part of the answer."""
        self._call.chunk(_encode(part))

    def reply(self, answer: msgspec.Struct) -> None:
        """Answer."""
        self._call.reply(_encode(answer))
        self._ended(Status.OK)

    def fail(self, status: Status, fault: Fault) -> None:
        """End the call without an answer."""
        self._call.fail(status, fault)
        self._ended(status, fault.code)

    def _cancelled(self) -> None:
        self.release_engine()
        self._ended(Status.CANCELLED)

    def _ended(self, status: Status, error: str = "") -> None:
        self._metrics.ended(status, self._clock() - self._began)
        if self._span is not None:
            self._span.end(error, status=status.name.lower())
