"""The requests that wait for their end on one channel, and the promise that each ends exactly once.

An entry leaves the table before its callback is called, and only what is in the table can be ended: an answer, a
deadline, a lost connection and a cancellation may come in any order, and only the first of them counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf

import msgspec

from copydesk.common.rpc.frames import Chunk, Response
from copydesk.common.telemetry import get_logger

SWEEP_SECONDS = 0.005
"""The least time between two sweeps: a deadline is noticed at most this late."""

OnReply = Callable[[Response], None]
OnChunk = Callable[[msgspec.Raw], None]

_log = get_logger(__name__)


class PendingRequests:
    """A table by request id. `on_expired` is called with the id of each request whose deadline passes; it ends it.

    There is one timer for the whole table, set for the earliest deadline that was in it when it was last looked
    at; the sweep then looks at all of it. Requests end long before their deadlines as a rule, so that sweeps are
    rare, where a timer or a heap entry for each would be paid with every request.
    """

    __slots__ = ("_entries", "_loop", "_on_expired", "_sweep_at", "_sweeper")

    def __init__(self, loop: asyncio.AbstractEventLoop, on_expired: Callable[[int], None]) -> None:
        self._loop = loop
        self._on_expired = on_expired
        self._entries: dict[int, tuple[float, OnReply, OnChunk | None]] = {}
        self._sweep_at = inf
        self._sweeper: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._entries)

    def ids(self) -> tuple[int, ...]:
        """Return the ids of what is pending now, oldest first."""
        return tuple(self._entries)

    def add(self, request_id: int, deadline: float, on_reply: OnReply, on_chunk: OnChunk | None) -> None:
        """Expect an end for `request_id`, by `deadline` in the event loop's time."""
        self._entries[request_id] = (deadline, on_reply, on_chunk)
        if deadline < self._sweep_at:
            self._sweep_by(deadline)

    def discard(self, request_id: int) -> bool:
        """Forget a request without calling it back; say whether it was pending."""
        return self._entries.pop(request_id, None) is not None

    def end(self, response: Response) -> None:
        """End the request that `response` answers, if it is still pending."""
        entry = self._entries.pop(response.id, None)
        if entry is None:
            return
        try:
            entry[1](response)
        except Exception:
            _log.exception("rpc_callback_failed", callback="on_reply")

    def stream(self, chunk: Chunk) -> None:
        """Hand on a part of the answer to a request, if it is still pending and wants parts."""
        entry = self._entries.get(chunk.id)
        if entry is None or entry[2] is None:
            return
        try:
            entry[2](chunk.payload)
        except Exception:
            _log.exception("rpc_callback_failed", callback="on_chunk")

    def stop_sweeping(self) -> None:
        """Watch deadlines no longer: the owner ends what is pending by other means."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._sweeper, self._sweep_at = None, -inf

    def _sweep_by(self, when: float) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._sweep_at = when
        self._sweeper = self._loop.call_at(when, self._sweep)

    def _sweep(self) -> None:
        self._sweeper, self._sweep_at = None, inf
        now = self._loop.time()
        for request_id in [key for key, entry in self._entries.items() if entry[0] <= now]:
            self._on_expired(request_id)
        if self._entries:
            earliest = max(min(entry[0] for entry in self._entries.values()), now + SWEEP_SECONDS)
            if earliest < self._sweep_at:
                self._sweep_by(earliest)
