"""What is asked of a server: a task to be done, or how it is."""

from __future__ import annotations

import asyncio
from typing import Protocol

from copydesk.common.rpc import Fault, Status
from copydesk.common.telemetry import get_logger
from copydesk.gateway.http_pod.pool import Asker, Pool
from copydesk.gateway.http_pod.questions import CHAT_COMPLETIONS, Question
from copydesk.gateway.http_pod.readers import EventReader, Reader, Unreadable, WholeReader, refusal

TOO_LONG = ("prompt_too_long", "context_exceeded")

_log = get_logger(__name__)
_BROKEN_OFF = Fault("engine_unavailable", "the server closed the connection before its answer was complete")


class Desk(Protocol):
    """Where the answers to tasks go."""

    def stream(self, request_id: int, text: str) -> None:
        """A part of an answer."""

    def answer(self, request_id: int, payload: bytes) -> None:
        """The whole of it, one msgpack value."""

    def fail(self, request_id: int, status: Status, fault: Fault) -> None:
        """There is none."""

    def lost(self, error: OSError) -> None:
        """The server cannot be reached any more."""


class Job(Asker):
    """One task on its way to a server and back."""

    def __init__(self, pool: Pool, desk: Desk, request_id: int, asked: Question, request: bytes) -> None:
        super().__init__(pool, request)
        self._desk = desk
        self._id = request_id
        self._asked = asked
        self._reader: Reader = EventReader() if asked.streamed else WholeReader()
        self._status = 0
        self._headers: dict[bytes, bytes] = {}
        self._refusal = bytearray()

    def on_head(self, status: int, headers: dict[bytes, bytes]) -> None:
        """The answer begins."""
        self._status, self._headers = status, headers

    def on_body(self, data: bytes) -> None:
        """More of its body."""
        if self._status != 200:
            self._refusal += data
            return
        try:
            text = self._reader.feed(data)
        except Unreadable as error:
            self.stop()
            self._unreadable(error)
            return
        if text:
            self._desk.stream(self._id, text)

    def answered(self) -> None:
        """The answer is complete."""
        if self._status != 200:
            self._refused()
            return
        try:
            payload = self._asked.conclude(self._reader.end())
        except Unreadable as error:
            self._unreadable(error)
        except Exception:
            _log.exception("http_answer_not_used")
            self._desk.fail(self._id, Status.INTERNAL, Fault("internal", "the gateway could not use the answer"))
        else:
            self._desk.answer(self._id, payload)

    def broken_off(self) -> None:
        """The answer will not be complete: the pod is left alone until it answers a ping."""
        self._desk.fail(self._id, Status.UNAVAILABLE, _BROKEN_OFF)

    def unreachable(self, error: OSError) -> None:
        """There is no connection to be had."""
        if not self.over:
            self._desk.lost(error)

    def _refused(self) -> None:
        chat = self._asked.path == CHAT_COMPLETIONS
        status, fault = refusal(self._status, self._headers, bytes(self._refusal), chat=chat)
        if fault.code in TOO_LONG and self._asked.too_long is not None:
            self._desk.answer(self._id, self._asked.too_long)
        else:
            self._desk.fail(self._id, status, fault)

    def _unreadable(self, error: Unreadable) -> None:
        fault = Fault("unreadable_answer", f"the server's answer cannot be used: {error}")
        self._desk.fail(self._id, Status.INTERNAL, fault)


class Inquiry(Asker):
    """A question about the server itself; `answer` becomes status and body, or raises `OSError`."""

    def __init__(self, pool: Pool, request: bytes) -> None:
        super().__init__(pool, request)
        self.answer: asyncio.Future[tuple[int, bytes]] = asyncio.get_running_loop().create_future()
        self._status = 0
        self._body = bytearray()

    def on_head(self, status: int, headers: dict[bytes, bytes]) -> None:
        """The answer begins."""
        del headers
        self._status = status

    def on_body(self, data: bytes) -> None:
        """More of its body."""
        self._body += data

    def answered(self) -> None:
        """The answer is complete."""
        if not self.answer.done():
            self.answer.set_result((self._status, bytes(self._body)))

    def broken_off(self) -> None:
        """The answer will not be complete."""
        self.unreachable(ConnectionResetError("the server closed the connection"))

    def unreachable(self, error: OSError) -> None:
        """There is no connection to be had."""
        if not self.answer.done():
            self.answer.set_exception(error)
