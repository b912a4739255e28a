"""How long it will take: rough expectations, set right by how long what is done has taken. Pure arithmetic.

The figures are those of the default model on two cores; time goes with the bytes of the weights, and with the
sentences where these are corrected.
"""

from __future__ import annotations

from collections.abc import Mapping

_BYTES = 270e6
"""The weights of the default model."""


class Outlook:
    """What is expected of each stage that is still to come, in seconds."""

    def __init__(self, expected: Mapping[str, float]) -> None:
        self._expected = dict(expected)
        self._left = dict(expected)
        self._took = 0.0
        self._should_have = 0.0

    def expected(self, stage: str) -> float:
        """Seconds that a stage will likely take, on a machine that was as slow as this one up to now."""
        return self._expected.get(stage, 0.0) * self._pace()

    def skipped(self, stage: str) -> None:
        """Count out a stage that is not done again."""
        self._left.pop(stage, None)

    def done(self, stage: str, seconds: float) -> None:
        """Learn from a stage that is over."""
        self._took += seconds
        self._should_have += self._left.pop(stage, 0.0)

    def left(self) -> float:
        """Seconds until the end."""
        return sum(self._left.values()) * self._pace()

    def _pace(self) -> float:
        """How many times as long as expected it has taken; the first seconds tell nothing."""
        weight = 30.0
        return (self._took + weight) / (self._should_have + weight)


def expectations(
    *, weights: int, sentences: int, plans: int, settings: int, searched: bool, capacity: bool, quick: bool
) -> dict[str, float]:
    """Return the seconds expected of each stage. Half of the plans answer in 8 bits, the original does not."""
    size = max(weights / _BYTES, 0.05)
    asked = sentences * size * (0.12 + 0.05 * plans)
    starts = 6.0 + 4.0 * size
    return {
        "check": 1.0 + 0.5 * size,
        "search": (asked + 15.0 * plans * (0.5 if quick else 1.0) * min(size, 4.0)) if searched else 0.0,
        "quantise": 1.0 + 3.0 * size,
        "gate": 3.0 + (0.0 if searched else asked),
        "tune": settings * (starts + 12.0) * (1.0 if quick else 2.0),
        "capacity": (180.0 if quick else 660.0) if capacity else 0.0,
        "cold-start": starts * (1.0 if quick else 3.0),
        "profile": 1.0,
    }


def duration(seconds: float) -> str:
    """Write a time as people say it."""
    if seconds < 100:
        return f"{max(seconds, 1):.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes / 60:.1f} h"
