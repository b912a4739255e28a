"""A limit on bytes a second, for what is fetched in the background: pure, time is passed in."""

from __future__ import annotations


class Pace:
    """Lets through `rate` bytes a second on average, and up to a second's worth at once."""

    def __init__(self, rate: float, now: float) -> None:
        self._rate = rate
        self._free_at = now

    def delay(self, amount: int, now: float) -> float:
        """Account for `amount` bytes and return for how many seconds to wait before they may be fetched."""
        self._free_at = max(self._free_at, now - 1.0)
        wait = max(0.0, self._free_at - now)
        self._free_at += amount / self._rate
        return wait
