"""The seam between discovery and whoever decides which of its replicas publishes.

Every replica follows its source; one publishes. `epoch` is what its snapshots carry: receivers follow the largest,
so that a leader that was paused and wakes up cannot speak over its successor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Leadership(Protocol):
    """Whether this replica may publish, and under which epoch."""

    @property
    def epoch(self) -> int:
        """The epoch of this replica's present or last term, in Unix milliseconds; 0 before its first."""

    def is_leader(self, now: float) -> bool:
        """Say whether this replica may publish at `now`, in monotonic seconds: to be asked before each time."""

    async def start(self, on_change: Callable[[], None]) -> None:
        """Begin to stand for election; `on_change` is called, on this event loop, when the answers changed."""

    async def close(self) -> None:
        """Stand down, and let go of what was opened."""


class Alone:
    """The leadership of a replica that is the only one: always leading, under the epoch of its start."""

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch

    @property
    def epoch(self) -> int:
        """The epoch that was given, in Unix milliseconds."""
        return self._epoch

    def is_leader(self, now: float) -> bool:
        """Say yes."""
        return True

    async def start(self, on_change: Callable[[], None]) -> None:
        """Do nothing: nobody else stands."""

    async def close(self) -> None:
        """Do nothing."""
