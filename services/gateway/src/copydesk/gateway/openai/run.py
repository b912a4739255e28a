"""One request underway: its texts written by pods, side by side, and handed on as they come."""

from __future__ import annotations

from functools import partial
from typing import Protocol

import msgspec

from copydesk.common.rpc import Priority
from copydesk.common.tasks import GeneratedText, TextChunk
from copydesk.common.telemetry import get_logger
from copydesk.gateway import faults
from copydesk.gateway.dispatch import Delivery
from copydesk.gateway.faults import ApiError, PodRefusalError
from copydesk.gateway.openai.forms import Ended
from copydesk.gateway.openai.refusals import of_pod
from copydesk.gateway.openai.validation import Job
from copydesk.gateway.submits import Handle, Submits

_decode_text = msgspec.msgpack.Decoder(GeneratedText).decode
_decode_chunk = msgspec.msgpack.Decoder(TextChunk).decode
_log = get_logger(__name__)


class Reply(Protocol):
    """Where the texts of a request go; `index` says which of them."""

    def part(self, index: int, text: str) -> None:
        """More of a text that is streamed."""
        ...

    def finished(self, index: int, ended: Ended) -> None:
        """A text is at its end."""
        ...

    def complete(self) -> None:
        """All texts are."""
        ...

    def failed(self, error: ApiError) -> None:
        """There will be no more."""
        ...


class Run:
    """Has each payload of a job done by a pod. The first that fails ends it, and takes the others along.

    `deadline` is in the event loop's time, `concurrency` the most texts that are written at once.
    """

    def __init__(
        self,
        dispatcher: Submits,
        job: Job,
        reply: Reply,
        *,
        deadline: float,
        priority: Priority,
        concurrency: int,
        request_id: str,
    ) -> None:
        self._dispatcher = dispatcher
        self._job = job
        self._reply = reply
        self._deadline = deadline
        self._priority = priority
        self._concurrency = concurrency
        self._request_id = request_id
        self._next = 0
        self._underway: dict[int, Handle] = {}
        self._done = False

    def start(self) -> None:
        """Send the first texts to pods; nothing comes back from within this call."""
        self._fill()

    def cancel(self) -> None:
        """Give all of it up; the reply hears nothing more."""
        self._done = True
        self._drop()

    def _fill(self) -> None:
        payloads = self._job.payloads
        while self._next < len(payloads) and len(self._underway) < self._concurrency:
            index, self._next = self._next, self._next + 1
            self._underway[index] = self._dispatcher.submit(
                payloads[index],
                self._deadline,
                partial(self._on_outcome, index),
                priority=self._priority,
                on_chunk=partial(self._on_chunk, index) if self._job.stream else None,
            )

    def _on_outcome(self, index: int, outcome: Delivery | ApiError) -> None:
        try:
            self._take(index, outcome)
        except Exception as error:
            self._broken(error)

    def _on_chunk(self, index: int, payload: msgspec.Raw) -> None:
        if self._done:
            return
        try:
            self._reply.part(index, _decode_chunk(payload).text)
        except Exception as error:
            self._broken(error)

    def _take(self, index: int, outcome: Delivery | ApiError) -> None:
        del self._underway[index]
        if isinstance(outcome, PodRefusalError):
            self._fail(of_pod(outcome, self._job.fields_of(index)))
            return
        if isinstance(outcome, ApiError):
            self._fail(outcome)
            return
        self._reply.finished(index, Ended(_decode_text(outcome.payload), outcome.digest))
        self._fill()
        if not self._underway:
            self._done = True
            self._reply.complete()

    def _broken(self, error: Exception) -> None:
        """End the request with an error: its client would wait for ever else."""
        if isinstance(error, msgspec.MsgspecError | UnicodeDecodeError):
            _log.error("pod_answer_undecodable", request_id=self._request_id, error=str(error))
            self._fail(faults.inference_failed("its answer does not decode"))
            return
        _log.error("answer_not_passed_on", request_id=self._request_id, exc_info=error)
        self._fail(faults.unexpected())

    def _fail(self, error: ApiError) -> None:
        self._done = True
        undone = len(self._underway) + len(self._job.payloads) - self._next
        self._dispatcher.demand.taken_along(error, undone)
        self._drop()
        self._reply.failed(error)

    def _drop(self) -> None:
        underway, self._underway = self._underway, {}
        for dispatch in underway.values():
            dispatch.cancel()
