"""How long to wait before the next attempt to connect."""

from __future__ import annotations

from collections.abc import Callable

_MAX_DOUBLINGS = 32


def backoff_seconds(attempt: int, *, random: Callable[[], float], base: float = 0.05, cap: float = 2.0) -> float:
    """Return the delay before attempt number `attempt` (0 is the first retry): doubling, capped, jittered.

    The jitter spans the upper half of the delay, so that gateways which lost a pod at the same moment come back
    spread out, and none hammers it.
    """
    ceiling = min(cap, base * 2.0 ** min(attempt, _MAX_DOUBLINGS))
    return ceiling * (0.5 + 0.5 * random())
