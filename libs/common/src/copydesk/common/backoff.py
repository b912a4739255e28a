"""How long to wait before trying again: one rule for connections and for processes."""

from __future__ import annotations

_MAX_DOUBLINGS = 32
"""Months of failures must not overflow a float."""


def backoff_seconds(attempt: int, *, first: float, cap: float, share: float) -> float:
    """Return the delay before retry number `attempt` (from 0): doubling from `first` up to `cap`, in seconds.

    `share`, a random number in [0, 1], places the delay between half and all of that, so that those who lost the
    same thing at the same moment do not all return at the same moment.
    """
    longest = min(cap, first * 2.0 ** min(attempt, _MAX_DOUBLINGS))
    return longest * (0.5 + 0.5 * share)
