"""The peak-sensitive average of latency."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.routing import PeakEwma


def test_there_is_no_value_before_the_first_sample() -> None:
    assert PeakEwma().value(10.0) is None


def test_a_peak_counts_at_once() -> None:
    average = PeakEwma()
    average.observe(10.0, 0.0)
    average.observe(500.0, 0.0)
    assert average.value(0.0) == 500.0


def test_recovery_takes_the_time_constant() -> None:
    average = PeakEwma(tau=10.0)
    average.observe(100.0, 0.0)
    average.observe(0.0, 10.0)
    assert average.value(10.0) == pytest.approx(100.0 / math.e)


def test_a_clock_that_steps_back_changes_nothing() -> None:
    average = PeakEwma()
    average.observe(100.0, 50.0)
    assert average.value(0.0) == 100.0


@given(st.lists(st.tuples(st.floats(0, 1e5), st.floats(0, 100)), min_size=1))
def test_the_average_never_leaves_the_range_from_zero_to_the_highest_sample(
    samples: list[tuple[float, float]],
) -> None:
    average, now = PeakEwma(), 0.0
    for sample, wait in samples:
        now += wait
        average.observe(sample, now)
    value = average.value(now)
    assert value is not None
    assert 0.0 <= value <= max(sample for sample, _ in samples) * (1 + 1e-9)


def test_a_time_constant_of_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="tau"):
        PeakEwma(tau=0.0)
