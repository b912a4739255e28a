"""What the gateway needs of its connection to a pod, whatever the pod speaks."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from copydesk.common.rpc import Address, Hello, Pong, Priority
from copydesk.common.rpc.pending import OnChunk, OnReply


@runtime_checkable
class Shareable(Protocol):
    """A link on which others may have written requests, as on an RPC channel."""

    def adopt(self, request_id: int, deadline: float, on_reply: OnReply, on_chunk: OnChunk | None = None) -> None:
        """Expect the end of a request that somebody else has written, by `deadline` in the event loop's time."""


class Link(Protocol):
    """An RPC channel, or what has the face of one. See `copydesk.common.rpc.Channel` for what is promised."""

    closed: bool
    draining: bool

    @property
    def address(self) -> Address:
        """Where the pod is."""

    @property
    def peer(self) -> Hello:
        """Who the pod says that it is."""

    @property
    def in_flight(self) -> int:
        """Requests without an answer."""

    def send(
        self,
        payload: bytes,
        *,
        deadline_ms: int,
        on_reply: OnReply,
        on_chunk: OnChunk | None = None,
        priority: Priority = Priority.INTERACTIVE,
        trace: str = "",
    ) -> int:
        """Send a request and return its id."""

    def cancel(self, request_id: int) -> None:
        """Give a request up."""

    async def ping(self, timeout: float) -> Pong:
        """Ask for a sign of life; raises `RpcPingError`."""

    async def close(self) -> None:
        """End the connection, and every request on it."""
