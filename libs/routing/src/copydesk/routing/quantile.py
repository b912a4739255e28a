"""Quantiles of recent latencies, in constant memory and a fraction of a microsecond an observation."""

from __future__ import annotations

from collections.abc import Sequence
from math import frexp

_STEPS = 8
"""Buckets an octave: a quantile is right within an eighth."""

_LEAST = 0.001
_OFFSET = 10 * _STEPS
_BUCKETS = 34 * _STEPS
"""From a thousandth of a millisecond to some hours."""


class Quantiles:
    """A histogram with logarithmic buckets that forgets by `fade`; the unit is the caller's, above 0.001."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts = [0.0] * _BUCKETS

    def observe(self, value: float) -> None:
        """Count one observation."""
        mantissa, exponent = frexp(value or _LEAST)
        index = _OFFSET + _STEPS * exponent + int(2 * _STEPS * mantissa) - _STEPS
        self._counts[0 if index < 0 else index if index < _BUCKETS else -1] += 1.0

    def absorb(self, counts: Sequence[float]) -> None:
        """Add observations that were counted elsewhere, in the same buckets."""
        self._counts = [count + more for count, more in zip(self._counts, counts, strict=True)]

    def fade(self, keep: float) -> None:
        """Let all that was observed so far count only `keep` of what it did."""
        self._counts = [count * keep for count in self._counts]

    @property
    def count(self) -> float:
        """How much is remembered."""
        return sum(self._counts)

    def quantile(self, share: float, least: float = 1.0) -> float | None:
        """Return a value that `share` of the observations do not exceed; None if there are fewer than `least`."""
        total = self.count
        if total < least or total <= 0.0:
            return None
        reached = 0.0
        for index, count in enumerate(self._counts):
            reached += count
            if count and reached >= share * total:
                return _upper(index)
        return _upper(_BUCKETS - 1)


def _upper(index: int) -> float:
    octave, step = divmod(index - _OFFSET, _STEPS)
    return (_STEPS + step + 1) / (2 * _STEPS) * 2.0**octave
