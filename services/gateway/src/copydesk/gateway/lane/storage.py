"""Where the numbers are kept that Python and the lane both count with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

from copydesk.gateway.cells import Cell, Count
from copydesk.gateway.gate import PlaceCounts, Places
from copydesk.routing import Ledger, LedgerRules


@dataclass(frozen=True, slots=True)
class Storage:
    """Makes the objects that hold them."""

    ledger: Callable[[], LedgerRules] = Ledger
    places: Callable[[], PlaceCounts] = Places
    cell: Callable[[], Count] = Cell


def storage(native: ModuleType | None) -> Storage:
    """Return what the compiled module can share; without one, Python's own."""
    if native is None:
        return Storage()
    shared: type[LedgerRules] = type("SharedLedger", (native.Account, LedgerRules), {"__slots__": ()})

    def ledger() -> LedgerRules:
        made = shared()
        made.reset()
        return made

    return Storage(ledger, native.Places, native.Cell)
