"""One steady clock: the wall clock as it was at the start, counted on by the monotonic one."""

from __future__ import annotations

import time
from collections.abc import Callable


class SteadyClock:
    """Unix seconds that no step of the wall clock moves; the time of day is as right as it was at the start."""

    def __init__(
        self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._monotonic = monotonic
        self._offset = wall() - monotonic()

    def now(self) -> float:
        """Return the moment, in seconds."""
        return self._offset + self._monotonic()
