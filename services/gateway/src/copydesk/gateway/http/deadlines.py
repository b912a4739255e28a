"""Deadlines that all lie equally far ahead: a queue and one timer, where each would have a timer of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class Deadlines(Generic[T]):
    """Calls `on_due` with each item that was added `seconds` ago and not discarded since.

    What comes first is due first, so that only the head of the queue needs a look. Most items are discarded long
    before, and cost an entry in a dict; the timer then finds nothing to do, and is set anew with the next item.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float, on_due: Callable[[T], None]) -> None:
        self.seconds = seconds
        self._loop = loop
        self._on_due = on_due
        self._due: dict[T, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._due)

    def add(self, item: T) -> None:
        """Start the clock for an item, anew if it has run already."""
        self._due.pop(item, None)
        self._due[item] = self._loop.time() + self.seconds
        if self._timer is None:
            self._timer = self._loop.call_later(self.seconds, self._sweep)

    def discard(self, item: T) -> None:
        """Stop the clock for an item, if it runs."""
        self._due.pop(item, None)

    def _sweep(self) -> None:
        self._timer = None
        now = self._loop.time()
        while self._due:
            item, due = next(iter(self._due.items()))
            if due > now:
                if self._timer is None:
                    self._timer = self._loop.call_later(due - now, self._sweep)
                return
            del self._due[item]
            self._on_due(item)
