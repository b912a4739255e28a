"""A limit on retries, so that a struggling fleet is not struck twice by each request."""

from __future__ import annotations

import math

_GRAIN_SECONDS = 0.1
"""What is counted within that time is forgotten together: an exponential each would cost more than the count."""


class RetryBudget:
    """Allow retries up to a share of recent requests plus a floor a second.

    Requests and retries are both counted with exponential forgetting over `window` seconds, so in a steady state
    retries/s <= ratio x requests/s + floor, and a quiet gateway may still spend `floor x window` at once: enough
    for all that was in flight on a pod that died. Compare Finagle's RetryBudget.
    """

    __slots__ = ("_at", "_ratio", "_requests", "_reserve", "_retries", "_window")

    def __init__(self, *, ratio: float = 0.1, floor: float = 10.0, window: float = 10.0) -> None:
        self._ratio = ratio
        self._reserve = floor * window
        self._window = window
        self._requests = 0.0
        self._retries = 0.0
        self._at = -math.inf

    def request(self, now: float, count: int = 1) -> None:
        """Count a first attempt, or several at once."""
        if now - self._at > _GRAIN_SECONDS:
            self._forget(now)
        self._requests += count

    def try_spend(self, now: float) -> bool:
        """Take one retry, or one hedge, out of the budget if it holds one."""
        if self.balance(now) < 1.0:
            return False
        self._retries += 1.0
        return True

    def overdraw(self, now: float) -> None:
        """Take one retry even if the budget is spent; later ones pay for it.

        For failures whose number is bounded by themselves: a lost connection fails what was in flight on it,
        once.
        """
        self._forget(now)
        self._retries += 1.0

    def balance(self, now: float) -> float:
        """Return how many retries are left at `now`; below zero when overdrawn."""
        self._forget(now)
        return self._reserve + self._ratio * self._requests - self._retries

    def _forget(self, now: float) -> None:
        if now > self._at:
            keep = math.exp(-(now - self._at) / self._window)
            self._requests *= keep
            self._retries *= keep
            self._at = now
