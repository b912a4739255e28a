"""Heads of requests that have been read before: the same bytes mean the same.

A client sends one head again and again on its connections. What the parser made of it the first time is kept by
its bytes, and the next time a request needs no parser, and no header of it another look.
"""

from __future__ import annotations

from collections.abc import Mapping

from copydesk.gateway.http.exchange import Handler

MOST_HEADS = 2_000
MOST_HEAD_BYTES = 2_000

_UNIQUE = (b"x-request-id", b"traceparent")
"""What a client sends with a value of its own each time: such a head does not come again."""

_NEVER = object()


class KnownHead:
    """What a head says: whom it is for, and how long its body is.

    `client` is who sent it, as found when `epoch` was the epoch of the keys.
    """

    __slots__ = ("client", "epoch", "handler", "headers", "length", "path")

    def __init__(self, path: str, handler: Handler, headers: Mapping[bytes, bytes], length: int) -> None:
        self.path = path
        self.handler = handler
        self.headers = headers
        self.length = length
        self.client = ""
        self.epoch: object = _NEVER


class KnownHeads:
    """The heads by their bytes, blank line included; `get` finds one. When there are too many, all go."""

    def __init__(self) -> None:
        self._heads: dict[bytes, KnownHead] = {}
        self.get = self._heads.get

    def __len__(self) -> int:
        return len(self._heads)

    def learn(self, head: bytes, known: KnownHead) -> None:
        """Keep a head, if it is likely to come again."""
        if len(head) > MOST_HEAD_BYTES or any(name in known.headers for name in _UNIQUE):
            return
        if len(self._heads) >= MOST_HEADS:
            self._heads.clear()
        self._heads[head] = known

    def forget(self) -> None:
        """Forget all, since what was found out about them may hold no longer."""
        self._heads.clear()
