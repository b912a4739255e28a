"""Bounds on a share, and the test for growth."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from copydesk.loadtest.bounds import beta_share, lower_bound, student_tail, surely_above, surely_below, upper_bound
from copydesk.loadtest.growth import growth_p_value


def binomial_at_most(hits: int, trials: int, p: float) -> float:
    return math.fsum(math.comb(trials, k) * p**k * (1 - p) ** (trials - k) for k in range(hits + 1))


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 200), st.data(), st.sampled_from([0.9, 0.95, 0.975]))
def test_bounds_are_where_the_binomial_tail_is_what_they_promise(
    trials: int, data: st.DataObject, confidence: float
) -> None:
    hits = data.draw(st.integers(0, trials - 1))
    assert binomial_at_most(hits, trials, upper_bound(hits, trials, confidence)) == pytest.approx(1 - confidence)
    if hits > 0:
        below = binomial_at_most(hits - 1, trials, lower_bound(hits, trials, confidence))
        assert 1 - below == pytest.approx(1 - confidence)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 5000), st.data(), st.floats(0.001, 0.2))
def test_what_is_surely_below_or_above_a_share_is_what_the_bounds_say(
    trials: int, data: st.DataObject, share: float
) -> None:
    hits = data.draw(st.integers(0, trials))
    assert surely_below(share, hits, trials) == (upper_bound(hits, trials) < share)
    assert surely_above(share, hits, trials) == (lower_bound(hits, trials) > share)


def test_it_takes_299_requests_without_a_miss_to_show_less_than_one_percent() -> None:
    assert upper_bound(0, 298) > 0.01 > upper_bound(0, 299)


def test_bounds_hold_where_nothing_or_everything_was_hit_and_in_large_samples() -> None:
    assert (upper_bound(5, 5), lower_bound(0, 5), upper_bound(0, 0), lower_bound(0, 0)) == (1.0, 0.0, 1.0, 0.0)
    # For many trials the bounds come close to those of the normal approximation.
    assert upper_bound(10_000, 1_000_000) == pytest.approx(0.01 + 1.645 * math.sqrt(0.0099 / 1e6), rel=1e-3)
    assert lower_bound(10_000, 1_000_000) == pytest.approx(0.01 - 1.645 * math.sqrt(0.0099 / 1e6), rel=1e-3)


@pytest.mark.parametrize(
    ("t", "freedom", "tail"),
    [(0.0, 7, 0.5), (1.0, 1, 0.25), (6.314, 1, 0.05), (1.812, 10, 0.05), (2.764, 10, 0.01), (-1.812, 10, 0.95)],
)
def test_the_tail_of_student_is_that_of_the_tables(t: float, freedom: float, tail: float) -> None:
    assert student_tail(t, freedom) == pytest.approx(tail, abs=2e-4)


@given(st.floats(0.001, 0.999), st.floats(0.2, 300), st.floats(0.2, 300))
def test_the_beta_function_mirrors_itself(x: float, a: float, b: float) -> None:
    assert beta_share(x, a, b) + beta_share(1 - x, b, a) == pytest.approx(1.0, abs=1e-9)


def queue(rng: random.Random, steps: int, load: float) -> list[float]:
    """The mean length of a queue in 40 pieces of time: in each step somebody comes or is served."""
    length, lengths = 0, []
    for _ in range(steps):
        length = max(0, length + (1 if rng.random() < load / (1 + load) else -1))
        lengths.append(length)
    piece = steps // 40
    return [sum(lengths[i * piece : (i + 1) * piece]) / piece for i in range(40)]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6))
def test_a_queue_that_builds_up_is_found_to_grow(seed: int) -> None:
    assert growth_p_value(queue(random.Random(seed), 20_000, 1.3)) < 0.01


def test_a_queue_that_only_swings_is_rarely_found_to_grow() -> None:
    alarms = sum(growth_p_value(queue(random.Random(seed), 4000, 0.8)) < 0.01 for seed in range(200))
    assert alarms <= 6


def test_what_stays_falls_or_is_too_short_does_not_grow_and_a_straight_line_does() -> None:
    assert growth_p_value([3.0] * 40) == 1.0
    assert growth_p_value([float(-i) for i in range(40)]) == 1.0
    assert growth_p_value([1.0, 2.0, 3.0]) == 1.0
    assert growth_p_value([float(i) for i in range(40)]) == 0.0
