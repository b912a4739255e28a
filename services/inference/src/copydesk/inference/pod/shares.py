"""Who gets the next connection, and who has too many: decisions over plain numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Share:
    """A worker as the supervisor sees it: the connections it holds, and whether it takes more."""

    connections: int
    takes: bool = True


def choose_worker(shares: Sequence[Share]) -> int | None:
    """Return the index of the worker that takes connections and has the fewest; None if none takes any.

    Counting is exact, so that nothing is left to chance: 64 connections over 4 workers are 16 each.
    """
    takers = [(share.connections, index) for index, share in enumerate(shares) if share.takes]
    return min(takers)[1] if takers else None


def plan_returns(shares: Sequence[Share]) -> list[int]:
    """Return how many connections each worker should give back for all who take some to end up even.

    Nobody gives any while the most and the fewest differ by one at most, or while fewer than two take some.
    """
    returns = [0] * len(shares)
    takers = sorted((share.connections, index) for index, share in enumerate(shares) if share.takes)
    if not takers or takers[-1][0] - takers[0][0] < 2:
        return returns
    fair, left_over = divmod(sum(connections for connections, _ in takers), len(takers))
    for place, (connections, index) in enumerate(reversed(takers)):
        returns[index] = max(0, connections - fair - (place < left_over))
    return returns
