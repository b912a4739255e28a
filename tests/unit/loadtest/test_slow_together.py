"""For how many a slow request counts, and what bounds promise, checked by drawing lots."""

from __future__ import annotations

import random
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.loadtest.bounds import lower_bound, upper_bound
from copydesk.loadtest.clusters import design_effect


def alone(rng: random.Random, n: int, share: float) -> list[bool]:
    return [rng.random() < share for _ in range(n)]


def together(rng: random.Random, n: int, share: float, size: int) -> list[bool]:
    """As many, but `size` of them in a row at a time."""
    hits: list[bool] = []
    while len(hits) < n:
        hits += [True] * size if rng.random() < share / (size * (1 - share) + share) else [False]
    return hits[:n]


@pytest.mark.parametrize("share", [0.004, 0.01, 0.03])
def test_a_bound_is_wrong_in_at_most_one_of_twenty_experiments(share: float) -> None:
    rng = random.Random(7)
    upper, lower = cache(lambda hits: upper_bound(hits, 600)), cache(lambda hits: lower_bound(hits, 600))
    counts = [sum(rng.random() < share for _ in range(600)) for _ in range(800)]
    for wrong in (sum(upper(hits) < share for hits in counts), sum(lower(hits) > share for hits in counts)):
        # 5 % of 800 are 40; more than 58 would be three standard deviations.
        assert wrong <= 58


def test_requests_that_come_by_themselves_count_for_one_each() -> None:
    rng = random.Random(5)
    effects = [design_effect(alone(rng, 2000, 0.05)) for _ in range(60)]
    assert sum(effects) / len(effects) < 1.6
    assert max(effects) < 6.0


@pytest.mark.parametrize("size", [5, 20])
def test_requests_that_are_slow_together_count_for_one_of_so_many(size: int) -> None:
    rng = random.Random(6)
    effects = [design_effect(together(rng, 6000, 0.05, size)) for _ in range(60)]
    assert sum(effects) / len(effects) == pytest.approx(size, rel=0.35)


def test_a_bound_on_what_is_slow_together_holds_once_it_counts_for_what_it_is_worth() -> None:
    rng = random.Random(8)
    naive = corrected = 0
    for _ in range(300):
        hits = together(rng, 3000, 0.05, 15)
        effect = design_effect(hits)
        naive += upper_bound(sum(hits), 3000) < 0.05
        corrected += upper_bound(sum(hits) / effect, 3000 / effect) < 0.05
    # Taken for independent, far more than 5 % of the bounds are wrong; as clusters, about as many as promised.
    assert naive > 75
    assert corrected < 36


@given(st.lists(st.booleans(), max_size=300))
def test_the_effect_is_at_least_one_and_at_most_the_number_of_requests(hits: list[bool]) -> None:
    assert 1.0 <= design_effect(hits) <= max(1.0, 22 * len(hits))


def test_without_a_hit_or_with_nothing_else_nothing_can_be_told() -> None:
    assert design_effect([False] * 500) == design_effect([True] * 500) == design_effect([]) == 1.0
