"""What the rest of the gateway sees of the compiled module, which may not be there to be imported."""

from __future__ import annotations

from typing import Protocol


class Seat(Protocol):
    """A connection of a client, which it shares with the lane.

    `stirred` is set by each answer, and `busy` says whether a request of it is underway.
    """

    stirred: bool

    @property
    def busy(self) -> bool:
        """Whether the lane has a request of this client."""

    def take(self, data: bytes) -> bool:
        """Take a request, if these bytes are a plain one; what was underway is handed back before."""

    def recall(self) -> None:
        """Have what is underway handed back."""

    def close(self) -> None:
        """The client has gone; so has what was underway."""


class Port(Protocol):
    """A connection to a pod, which it shares with the lane."""

    @property
    def in_frame(self) -> bool:
        """Whether a frame has begun to come and not ended."""

    def feed(self, data: bytes) -> list[bytes] | None:
        """Take what has come; return the bodies of frames that are not the lane's.

        Raises `OverflowError` for a frame that is too large, with its size and what would have been returned.
        """

    def recall(self) -> None:
        """Have what is underway here handed back."""

    def close(self) -> None:
        """The connection is gone; what was underway is handed back."""


class Connection(Protocol):
    """A client's connection, to which requests are handed back."""

    def resume(self, data: bytes) -> None:
        """Go on with the request that these bytes are."""
