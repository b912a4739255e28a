"""Meters: who decides about a request, in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from copydesk.gateway import faults
from copydesk.gateway.faults import ApiError
from copydesk.gateway.rates.gcra import MICROSECONDS, Rate, rule

OnRuling = Callable[[ApiError | None], None]
"""Told None if the request passes, else the error to refuse it with."""

PRUNE_AT = 10_000
"""States kept before those that say nothing any more are dropped; there is one for each client's name."""


class Meter(Protocol):
    """Counts requests of clients against their rates."""

    def spend(self, client: str, rate: Rate, on_ruling: OnRuling) -> None:
        """Have `on_ruling` called exactly once, from within this call if that can be."""
        ...


class LocalMeter:
    """Keeps the states in this process. `clock` gives seconds that never go back."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._due: dict[str, int] = {}
        self._prune_at = PRUNE_AT

    def __len__(self) -> int:
        return len(self._due)

    def spend(self, client: str, rate: Rate, on_ruling: OnRuling) -> None:
        """Decide at once."""
        now = int(self._clock() * MICROSECONDS)
        due, wait = rule(self._due.get(client, 0), now, rate)
        self._due[client] = due
        if len(self._due) > self._prune_at:
            self._prune(now)
        on_ruling(refusal(rate, wait) if wait else None)

    def _prune(self, now: int) -> None:
        self._due = {client: due for client, due in self._due.items() if due > now}
        self._prune_at = max(PRUNE_AT, 2 * len(self._due))


class ClosedMeter:
    """Lets nobody pass: for when limits must hold, and who knows how much is used cannot be asked."""

    def spend(self, client: str, rate: Rate, on_ruling: OnRuling) -> None:
        """Refuse at once."""
        del client, rate
        on_ruling(faults.limits_unavailable())


def refusal(rate: Rate, wait: int) -> ApiError:
    """Return the error for a request that may come again in `wait` microseconds."""
    return faults.rate_limited(MICROSECONDS / rate.interval, -(-wait // MICROSECONDS))
