"""Where a process is in its life."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True)
class Lifecycle:
    """Whether the process is on its way out: then each answer asks its client to connect anew, elsewhere."""

    stopping: bool = False
    on_stop: Callable[[], None] | None = None

    def stop(self) -> None:
        """Be on the way out."""
        self.stopping = True
        if self.on_stop is not None:
            self.on_stop()
