"""One number for each client, which others may hold on to and count with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

PRUNE_AT = 10_000
"""Cells kept before those that say nothing any more are dropped; there is one for each client's name."""


class Count(Protocol):
    """A number that is changed in place."""

    value: int


class Cell:
    """A number that only Python counts with."""

    __slots__ = ("value",)

    value: int

    def __init__(self) -> None:
        self.value = 0


class Cells:
    """The cells of clients, each made by `new_cell` when it is first asked for, with 0 in it.

    A client's cell stays that one for as long as it says something. When there would be more than `PRUNE_AT` of
    them, those are dropped whose numbers are at or below the `floor` of then, which is as good as 0; `on_prune` is
    called, and whoever holds any cell must forget it and ask again.
    """

    __slots__ = ("_by_client", "_floor", "_new_cell", "_on_prune", "_prune_at")

    def __init__(
        self, floor: Callable[[], int], new_cell: Callable[[], Count], on_prune: Callable[[], None]
    ) -> None:
        self._floor = floor
        self._new_cell = new_cell
        self._on_prune = on_prune
        self._by_client: dict[str, Count] = {}
        self._prune_at = PRUNE_AT

    def __len__(self) -> int:
        return len(self._by_client)

    def of(self, client: str) -> Count:
        """Return the cell of a client."""
        cell = self._by_client.get(client)
        if cell is None:
            if len(self._by_client) >= self._prune_at:
                self._prune()
            cell = self._by_client[client] = self._new_cell()
        return cell

    def value(self, client: str) -> int:
        """Return the number of a client, for which no cell is made."""
        cell = self._by_client.get(client)
        return 0 if cell is None else cell.value

    def _prune(self) -> None:
        floor = self._floor()
        self._by_client = {client: cell for client, cell in self._by_client.items() if cell.value > floor}
        self._prune_at = max(PRUNE_AT, 2 * len(self._by_client))
        self._on_prune()
