"""What has requests answered, as those see it who have requests: the dispatcher, or whoever stands before it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from copydesk.common.rpc import Priority
from copydesk.gateway.demand import Demand

if TYPE_CHECKING:
    from copydesk.gateway.dispatch import OnChunk, OnDone


class Handle(Protocol):
    """A request that was submitted."""

    def cancel(self) -> None:
        """Give it up; nothing is told of it any more."""


class Weighed(Protocol):
    """Pods that run the same weights."""

    @property
    def digest(self) -> str:
        """Which weights these are, as far as is known."""


class Submits(Protocol):
    """What has requests answered: the dispatcher, or who stands before it and keeps its promises."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop that it works on."""

    @property
    def fleet(self) -> Weighed:
        """Who answers."""

    @property
    def demand(self) -> Demand:
        """Where requests are counted."""

    def submit(
        self,
        payload: bytes,
        deadline: float,
        on_done: OnDone,
        *,
        priority: Priority = Priority.INTERACTIVE,
        on_chunk: OnChunk | None = None,
    ) -> Handle:
        """Start one request: see `Dispatcher.submit`."""
