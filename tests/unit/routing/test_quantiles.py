"""Quantiles of what was seen lately."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.routing import Quantiles


def test_there_is_none_before_enough_was_seen() -> None:
    quantiles = Quantiles()
    assert quantiles.quantile(0.5) is None
    quantiles.observe(1.0)
    assert quantiles.quantile(0.5) is not None
    assert quantiles.quantile(0.5, least=2.0) is None


@given(st.lists(st.floats(0.01, 1e6), min_size=1), st.floats(0.01, 1.0))
def test_a_quantile_is_right_within_an_eighth(values: list[float], share: float) -> None:
    quantiles = Quantiles()
    for value in values:
        quantiles.observe(value)
    exact = sorted(values)[max(0, math.ceil(share * len(values) - 1e-9) - 1)]
    found = quantiles.quantile(share)
    assert found is not None
    assert exact <= found * (1 + 1e-9)
    assert found <= exact * 1.13


@pytest.mark.parametrize("value", [0.0, 1e-9, 1e30])
def test_what_is_out_of_range_counts_at_its_end(value: float) -> None:
    quantiles = Quantiles()
    quantiles.observe(value)
    assert quantiles.count == 1.0


def test_what_is_long_past_fades() -> None:
    quantiles = Quantiles()
    for _ in range(100):
        quantiles.observe(1000.0)
    for _ in range(50):
        quantiles.fade(0.9)
    quantiles.observe(10.0)
    assert quantiles.quantile(0.6) == pytest.approx(10.0, rel=0.13)
