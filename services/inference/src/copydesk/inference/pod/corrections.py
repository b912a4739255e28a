"""A gateway's request to correct a sentence: tokens to the engine, text back."""

from __future__ import annotations

import functools

import msgspec

from copydesk.common.rpc import Fault, Response, Status
from copydesk.common.tasks import CorrectSentence, Outcome
from copydesk.inference.correction import Corrector, EncodedSentence
from copydesk.inference.engine import GeneratedTokens, PromptTooLongError
from copydesk.inference.pod.engines import Engines
from copydesk.inference.pod.task_call import TaskCall

_EMPTY = Fault("empty_text", "expected a sentence; there is nothing but white space", parameter="text")


class Corrections:
    """Answers each request; lives on the event loop."""

    def __init__(self, corrector: Corrector, engines: Engines) -> None:
        self._corrector = corrector
        self._engines = engines
        self._decode_answer = msgspec.msgpack.Decoder(GeneratedTokens).decode

    def take(self, call: TaskCall, task: CorrectSentence) -> None:
        """Take one request."""
        if not task.text.strip():
            call.fail(Status.INVALID, _EMPTY)
            return
        sentence = self._corrector.encode(task.text)
        if not sentence.fits:
            call.reply(self._corrector.refuse(sentence))
            return
        call.ask(self._engines, sentence.request(), functools.partial(self._answered, call, sentence))

    def _answered(self, call: TaskCall, sentence: EncodedSentence, response: Response) -> None:
        if response.status is Status.OK:
            call.reply(self._corrector.decode(sentence, self._decode_answer(response.payload)))
            return
        fault = response.fault or Fault("internal", "the engine gave no reason")
        if fault.code == PromptTooLongError.code:
            call.reply(sentence.keep(Outcome.TOO_LONG))
            return
        call.fail(response.status, fault)
