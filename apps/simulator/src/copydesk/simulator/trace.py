"""Demand over time: how many requests came in each second."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from copydesk.common.errors import CopydeskError

Seconds = NDArray[np.float64]
"""One number for each second."""

LONGEST_S = 70 * 86_400


class TraceError(CopydeskError):
    """A trace that cannot be simulated: `source` names it, `line` where (0: all of it), `reason` says why."""

    exit_code = 2

    def __init__(self, source: str, line: int, reason: str) -> None:
        self.source = source
        self.line = line
        self.reason = reason
        super().__init__(f"{source}:{line}: {reason}" if line else f"{source}: {reason}")


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """Requests a second, for each second; `text` says in words what it is."""

    name: str
    text: str
    rates: Seconds

    def __post_init__(self) -> None:
        if not 60 <= len(self.rates) <= LONGEST_S:
            raise TraceError(
                self.name, 0, f"{len(self.rates)} s long, expected 60 s to {LONGEST_S // 86_400} days"
            )
        if not (np.isfinite(self.rates).all() and (self.rates >= 0).all()):
            raise TraceError(self.name, 0, "has a rate that is not finite, or below 0")
        if not self.rates.any():
            raise TraceError(self.name, 0, "has no request in it")

    def scaled(self, peak: float) -> Trace:
        """Return the same shape with another peak, in requests a second."""
        return Trace(self.name, self.text, self.rates * (peak / self.rates.max()))

    def arrivals(self, seed: int) -> Seconds:
        """Return how many requests came in each second: as chance has it, the same for each policy."""
        return np.random.default_rng(seed).poisson(self.rates).astype(np.float64)
