"""Arrival times, planned beforehand."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.loadtest import Plan, PlanError


def test_constant_arrivals_are_evenly_spaced_and_do_not_drift() -> None:
    plan = Plan.constant(10, 0.5)
    assert plan == Plan((0.0, 0.1, 0.2, 0.3, 0.4), 10)
    assert Plan.constant(200, 3600).offsets[-1] == 719_999 / 200


@given(st.floats(0.1, 500), st.floats(0.01, 5), st.integers())
def test_poisson_arrivals_ascend_within_the_duration(rate: float, duration: float, seed: int) -> None:
    offsets = Plan.poisson(rate, duration, random.Random(seed)).offsets
    assert list(offsets) == sorted(offsets)
    assert all(0 <= offset < duration for offset in offsets)


def test_poisson_arrivals_have_the_rate_and_the_spread_of_independent_users() -> None:
    offsets = Plan.poisson(100, 200, random.Random(7)).offsets
    gaps = [after - before for before, after in itertools.pairwise(offsets)]
    assert len(offsets) / 200 == pytest.approx(100, rel=0.03)
    assert sum(gap > 0.01 for gap in gaps) / len(gaps) == pytest.approx(0.3679, abs=0.015)


def test_the_same_seed_plans_the_same_arrivals() -> None:
    assert Plan.poisson(5, 9, random.Random(3)) == Plan.poisson(5, 9, random.Random(3))


@pytest.mark.parametrize(("rate", "duration"), [(0, 1), (-1, 1), (1, 0), (float("inf"), 1), (1, float("nan"))])
def test_a_plan_without_a_rate_or_an_end_is_refused(rate: float, duration: float) -> None:
    with pytest.raises(PlanError) as constant:
        Plan.constant(rate, duration)
    with pytest.raises(PlanError) as poisson:
        Plan.poisson(rate, duration, random.Random(1))
    assert constant.value.name == poisson.value.name == ("duration" if rate == 1 else "rate")
