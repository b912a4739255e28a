"""A gateway's request for a text: tokens to the engine, text back, as it is made where that is wanted."""

from __future__ import annotations

import functools

import msgspec

from copydesk.common.rpc import Fault, Response, Status
from copydesk.common.tasks import GenerateText, TextChunk
from copydesk.inference.completion import Completer, CompletionError, Writing
from copydesk.inference.engine import GeneratedTokens, InvalidSamplingError
from copydesk.inference.pod.engines import Engines
from copydesk.inference.pod.task_call import TaskCall


class Completions:
    """Answers each request; lives on the event loop."""

    def __init__(self, completer: Completer, engines: Engines) -> None:
        self._completer = completer
        self._engines = engines
        self._decode_answer = msgspec.msgpack.Decoder(GeneratedTokens).decode
        self._decode_tokens = msgspec.msgpack.Decoder(list[int]).decode

    def take(self, call: TaskCall, task: GenerateText) -> None:
        """Take one request."""
        try:
            plan = self._completer.plan(task)
        except (CompletionError, InvalidSamplingError) as error:
            call.fail(Status.INVALID, Fault(error.code, str(error), parameter=error.parameter))
            return
        call.ask(
            self._engines,
            plan.request,
            on_reply=functools.partial(self._answered, call, plan.writing, task.stream),
            on_chunk=functools.partial(self._made, call, plan.writing, task.stream),
        )

    def _made(self, call: TaskCall, writing: Writing, stream: bool, payload: msgspec.Raw) -> None:
        text = writing.push(self._decode_tokens(payload))
        if stream and text:
            call.chunk(TextChunk(text))
        if writing.stopped:
            call.release_engine()
            call.reply(writing.cut())

    def _answered(self, call: TaskCall, writing: Writing, stream: bool, response: Response) -> None:
        if response.status is not Status.OK:
            call.fail(response.status, response.fault or Fault("internal", "the engine gave no reason"))
            return
        answer = self._decode_answer(response.payload)
        text = writing.finish(answer)
        if stream and text:
            call.chunk(TextChunk(text))
        call.reply(writing.result(answer))
