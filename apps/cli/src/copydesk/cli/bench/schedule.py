"""Who is measured when, and with which texts: decided beforehand, so that drift of the machine favours nobody."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def order(items: Sequence[T], round_: int) -> list[T]:
    """Return the order of a round: every second one backwards, and each pair begins further on.

    Over two rounds everybody is on average equally far from the beginning.
    """
    if not items:
        return []
    start = (round_ // 2) % len(items)
    turned = [*items[start:], *items[:start]]
    return turned[::-1] if round_ % 2 else turned


def share(count: int, rounds: int, round_: int) -> range:
    """Return the indices of the texts that a round sends one at a time: all rounds together, each text once."""
    return range(round_ * count // rounds, (round_ + 1) * count // rounds)


def load(count: int, concurrency: int, per_user: int = 3) -> list[int]:
    """Return the indices of the texts of a loop with many users: every text, over and over if there are few.

    Each user gets at least `per_user` turns; with fewer, filling and draining the engine would be most of it.
    """
    return [number % count for number in range(max(count, per_user * concurrency))]
