"""The peak-sensitive average of latency."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.routing import ewma


def after(*samples: tuple[float, float], tau: float = 10.0) -> tuple[float, float]:
    """The average once these samples have been seen, each at its moment."""
    average = ewma.NOTHING
    for sample, now in samples:
        average = ewma.observe(*average, sample, now, tau)
    return average


def test_there_is_no_value_before_the_first_sample() -> None:
    assert ewma.value(*ewma.NOTHING, 10.0, tau=10.0) is None


def test_a_peak_counts_at_once() -> None:
    assert ewma.value(*after((10.0, 0.0), (500.0, 0.0)), 0.0, tau=10.0) == 500.0


def test_recovery_takes_the_time_constant() -> None:
    average = after((100.0, 0.0), (0.0, 10.0), tau=10.0)
    assert ewma.value(*average, 10.0, tau=10.0) == pytest.approx(100.0 / math.e)


def test_a_clock_that_steps_back_changes_nothing() -> None:
    assert ewma.value(*after((100.0, 50.0)), 0.0, tau=10.0) == 100.0
    assert after((100.0, 50.0), (1.0, 0.0)) == (100.0, 50.0)


@given(st.lists(st.tuples(st.floats(0, 1e5), st.floats(0, 100)), min_size=1))
def test_the_average_never_leaves_the_range_from_zero_to_the_highest_sample(
    samples: list[tuple[float, float]],
) -> None:
    average, now = ewma.NOTHING, 0.0
    for sample, wait in samples:
        now += wait
        average = ewma.observe(*average, sample, now, 10.0)
    value = ewma.value(*average, now, 10.0)
    assert value is not None
    assert 0.0 <= value <= max(sample for sample, _ in samples) * (1 + 1e-9)
