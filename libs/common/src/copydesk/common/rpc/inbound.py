"""One request as its server sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from copydesk.common.rpc.frames import Chunk, Fault, Load, Priority, Request, Response, Status


class CallOwner(Protocol):
    """What a call needs of the connection it came on."""

    def finish(self, response: Response) -> None:
        """Send the end of a call, and forget it."""

    def stream(self, chunk: Chunk) -> None:
        """Send a part of an answer."""

    def load(self) -> Load:
        """How busy the server is now."""

    def now(self) -> float:
        """The event loop's time, in seconds."""


class InboundCall:
    """A request to be answered by exactly one of `reply` and `fail`, at any time, from the event loop's thread.

    `deadline` is in the event loop's time. `on_cancel`, set by the handler, is called once if the client gives up
    or the connection is lost before the answer.
    """

    __slots__ = ("_owner", "cancelled", "deadline", "done", "id", "on_cancel", "payload", "priority", "trace")

    def __init__(self, owner: CallOwner, request: Request, now: float) -> None:
        self._owner = owner
        self.id = request.id
        self.payload: msgspec.Raw = request.payload
        self.priority: Priority = request.priority
        self.trace = request.trace
        self.deadline = now + request.deadline_ms / 1000
        self.cancelled = False
        self.done = False
        self.on_cancel: Callable[[], None] | None = None

    def remaining_ms(self) -> int:
        """Milliseconds until the deadline, 0 once it has passed."""
        return max(0, int((self.deadline - self._owner.now()) * 1000))

    def reply(self, payload: bytes) -> None:
        """Answer with `payload`, one msgpack value. Ignored when the call was answered or cancelled."""
        if self.done or self.cancelled:
            return
        self.done = True
        self._owner.finish(Response(self.id, Status.OK, self._owner.load(), msgspec.Raw(payload)))

    def fail(self, status: Status, fault: Fault) -> None:
        """End the call without an answer. Ignored when the call was answered or cancelled."""
        if self.done or self.cancelled:
            return
        self.done = True
        self._owner.finish(Response(self.id, status, self._owner.load(), fault=fault))

    def chunk(self, payload: bytes) -> None:
        """Send a part of the answer, one msgpack value. Ignored when the call was answered or cancelled."""
        if not self.done and not self.cancelled:
            self._owner.stream(Chunk(self.id, msgspec.Raw(payload)))
