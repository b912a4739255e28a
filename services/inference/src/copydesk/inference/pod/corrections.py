"""A gateway's request to correct a sentence: tokens to the engine, text back."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

import msgspec

from copydesk.common.rpc import Fault, InboundCall, Response, Status
from copydesk.common.tasks import CorrectedSentence, CorrectSentence, Outcome
from copydesk.inference.correction import Corrector, EncodedSentence
from copydesk.inference.engine import GeneratedTokens, PromptTooLongError
from copydesk.inference.pod.engine_link import ENGINE_UNAVAILABLE, EngineLink
from copydesk.inference.pod.metrics import WorkerMetrics

_EMPTY = Fault("empty_text", "expected a sentence; there is nothing but white space")
_EXPIRED = Fault("deadline_exceeded", "it expired before it could be sent to the engine")


class Corrections:
    """Answers each RPC call; lives on the event loop."""

    def __init__(
        self,
        corrector: Corrector,
        link: EngineLink,
        metrics: WorkerMetrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._corrector = corrector
        self._link = link
        self._metrics = metrics
        self._clock = clock
        self._decode_task = msgspec.msgpack.Decoder(CorrectSentence).decode
        self._decode_answer = msgspec.msgpack.Decoder(GeneratedTokens).decode
        self._encode = msgspec.msgpack.Encoder().encode

    def handle(self, call: InboundCall) -> None:
        """Take one call; the handler of the worker's RPC server."""
        began = self._clock()
        try:
            task = self._decode_task(call.payload)
        except msgspec.DecodeError as error:
            self._fail(call, began, Status.INVALID, Fault("bad_payload", str(error)))
            return
        if not task.text.strip():
            self._fail(call, began, Status.INVALID, _EMPTY)
            return
        sentence = self._corrector.encode(task.text)
        if sentence.fits:
            self._ask(call, began, sentence)
        else:
            self._reply(call, began, self._corrector.refuse(sentence))

    def _ask(self, call: InboundCall, began: float, sentence: EncodedSentence) -> None:
        remaining = call.remaining_ms()
        if remaining <= 0:
            self._fail(call, began, Status.DEADLINE_EXCEEDED, _EXPIRED)
            return
        cancel = self._link.send(
            self._encode(sentence.request()),
            deadline_ms=remaining,
            priority=call.priority,
            on_reply=functools.partial(self._answered, call, began, sentence),
        )
        if cancel is None:
            self._fail(call, began, Status.UNAVAILABLE, ENGINE_UNAVAILABLE)
            return
        call.on_cancel = functools.partial(self._cancelled, cancel, began)

    def _answered(self, call: InboundCall, began: float, sentence: EncodedSentence, response: Response) -> None:
        if response.status is Status.OK:
            answer = self._decode_answer(response.payload)
            self._reply(call, began, self._corrector.decode(sentence, answer))
            return
        fault = response.fault or Fault("internal", "the engine gave no reason")
        if fault.code == PromptTooLongError.code:
            self._reply(call, began, sentence.keep(Outcome.TOO_LONG))
            return
        self._fail(call, began, response.status, fault)

    def _cancelled(self, cancel: Callable[[], None], began: float) -> None:
        cancel()
        self._metrics.ended(Status.CANCELLED, self._clock() - began)

    def _reply(self, call: InboundCall, began: float, corrected: CorrectedSentence) -> None:
        call.reply(self._encode(corrected))
        self._metrics.ended(Status.OK, self._clock() - began)

    def _fail(self, call: InboundCall, began: float, status: Status, fault: Fault) -> None:
        call.fail(status, fault)
        self._metrics.ended(status, self._clock() - began)
