"""Meters: who decides about a request, in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from copydesk.gateway import faults
from copydesk.gateway.cells import Cell, Cells, Count
from copydesk.gateway.faults import ApiError
from copydesk.gateway.rates.gcra import MICROSECONDS, Rate, rule

OnRuling = Callable[[ApiError | None], None]
"""Told None if the request passes, else the error to refuse it with."""


class Meter(Protocol):
    """Counts requests of clients against their rates."""

    def spend(self, client: str, rate: Rate, on_ruling: OnRuling) -> None:
        """Have `on_ruling` called exactly once, from within this call if that can be."""
        ...


class LocalMeter:
    """Keeps the states in this process. `clock` gives seconds that never go back.

    `on_prune` is called when states were dropped that say nothing any more: a cell that was handed out by
    `due_cell` may be nobody's then.
    """

    def __init__(self, clock: Callable[[], float], *, new_cell: Callable[[], Count] = Cell) -> None:
        self.on_prune: Callable[[], None] | None = None
        self._clock = clock
        self._due = Cells(self._now, new_cell, self._pruned)

    def __len__(self) -> int:
        return len(self._due)

    def spend(self, client: str, rate: Rate, on_ruling: OnRuling) -> None:
        """Decide at once."""
        cell = self._due.of(client)
        cell.value, wait = rule(cell.value, self._now(), rate)
        on_ruling(refusal(rate, wait) if wait else None)

    def due_cell(self, client: str) -> Count:
        """Return where it stands when a client's next request is due, in microseconds of the clock."""
        return self._due.of(client)

    def _now(self) -> int:
        return int(self._clock() * MICROSECONDS)

    def _pruned(self) -> None:
        if self.on_prune is not None:
            self.on_prune()


class ClosedMeter:
    """Lets nobody pass: for when limits must hold, and who knows how much is used cannot be asked."""

    def spend(self, client: str, rate: Rate, on_ruling: OnRuling) -> None:
        """Refuse at once."""
        del client, rate
        on_ruling(faults.limits_unavailable())


def refusal(rate: Rate, wait: int) -> ApiError:
    """Return the error for a request that may come again in `wait` microseconds."""
    return faults.rate_limited(MICROSECONDS / rate.interval, -(-wait // MICROSECONDS))
