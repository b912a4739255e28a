"""The seam between discovery and whoever knows the fleet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from copydesk.eds.roster import Event

Emit = Callable[[Event], None]


class Source(Protocol):
    """Something that states, in events, which endpoints there are."""

    async def start(self, emit: Emit) -> None:
        """Begin to call `emit`, on this event loop, for each thing learnt; raise if that is impossible."""

    async def close(self) -> None:
        """Stop calling `emit`, and let go of what was opened."""
