"""A worker's view of the pod's engines: one to ask, however many there are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from copydesk.common.messages import EndpointState
from copydesk.common.rpc import Fault, Load, Priority, Response, Status
from copydesk.inference.engine import QueueFullError
from copydesk.inference.pod.engine_calls import retry_after_ms
from copydesk.inference.pod.engine_choice import Standing, choose_engine, total_load
from copydesk.inference.pod.engine_link import ENGINE_UNAVAILABLE, EngineLink


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request was not sent to any engine."""

    status: Status
    fault: Fault


_UNAVAILABLE = Refusal(Status.UNAVAILABLE, ENGINE_UNAVAILABLE)


class Engines:
    """Sends each request to the engine that has the least to do, of those that are there."""

    def __init__(self, links: Sequence[EngineLink]) -> None:
        self._links = links

    @property
    def state(self) -> EndpointState:
        """Ready when at least one engine is there, else warming."""
        return EndpointState.READY if any(link.available for link in self._links) else EndpointState.WARMING

    @property
    def load(self) -> Load:
        """How busy the engines that are there are, as far as this worker knows."""
        if len(self._links) == 1:
            return self._links[0].load
        return total_load(link.load for link in self._links if link.available)

    @property
    def digest(self) -> str:
        """The digest of their weights, once an engine has told it."""
        return next((link.digest for link in self._links if link.digest), "")

    def send(
        self,
        payload: bytes,
        *,
        deadline_ms: int,
        priority: Priority,
        on_reply: Callable[[Response], None],
        on_chunk: Callable[[msgspec.Raw], None] | None = None,
        trace: str = "",
    ) -> Callable[[], None] | Refusal:
        """Send a request and return what cancels it, or say why not: engines are away, or surely full."""
        link = self._choose(priority)
        cancel = link and link.send(
            payload,
            deadline_ms=deadline_ms,
            priority=priority,
            on_reply=on_reply,
            on_chunk=on_chunk,
            trace=trace,
        )
        return cancel or self._refusal()

    async def run(self) -> None:
        """Stay connected to all of them until cancelled."""
        async with asyncio.TaskGroup() as group:
            for link in self._links:
                group.create_task(link.run())

    def _choose(self, priority: Priority) -> EngineLink | None:
        chosen = choose_engine(
            [Standing(link.load, link.has_room(priority)) if link.available else None for link in self._links]
        )
        return None if chosen is None else self._links[chosen]

    def _refusal(self) -> Refusal:
        full = [link for link in self._links if link.available]
        if not full:
            return _UNAVAILABLE
        retry = min(retry_after_ms(link.load, link.request_seconds) for link in full)
        error = QueueFullError(sum(link.queue for link in full))
        return Refusal(Status.OVERLOADED, Fault(error.code, str(error), retry))
