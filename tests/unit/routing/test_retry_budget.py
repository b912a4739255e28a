"""The limits on retries and on reconnecting."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.routing import RetryBudget, backoff_seconds


def test_a_quiet_gateway_may_retry_its_reserve_at_once_and_no_more() -> None:
    budget = RetryBudget(ratio=0.1, floor=10.0, window=10.0)
    assert sum(budget.try_spend(0.0) for _ in range(150)) == 100


def test_in_a_steady_state_retries_stay_within_share_plus_floor() -> None:
    budget, now, allowed = RetryBudget(ratio=0.1, floor=10.0, window=10.0), 0.0, 0
    for tick in range(200 * 60):
        now = tick / 200
        budget.request(now)
        if budget.try_spend(now) and now >= 30.0:
            allowed += 1
    assert allowed / 30.0 == pytest.approx(30.0, rel=0.05)  # 10 % of 200/s, plus 10/s


def test_an_overdrawn_budget_refuses_until_it_has_recovered() -> None:
    budget = RetryBudget(ratio=0.0, floor=10.0, window=10.0)
    for _ in range(200):
        budget.overdraw(0.0)
    assert budget.balance(0.0) == pytest.approx(-100.0)
    assert not budget.try_spend(5.0)
    assert budget.try_spend(8.0)


@given(st.integers(0, 10_000), st.floats(0, 1, exclude_max=True))
def test_backoff_is_jittered_within_the_upper_half_and_capped(attempt: int, draw: float) -> None:
    delay = backoff_seconds(attempt, random=lambda: draw, base=0.05, cap=2.0)
    ceiling = min(2.0, 0.05 * 2 ** min(attempt, 40))
    assert ceiling / 2 <= delay <= ceiling


@given(st.integers(0, 100))
def test_backoff_never_shrinks_from_one_attempt_to_the_next(attempt: int) -> None:
    assert backoff_seconds(attempt + 1, random=lambda: 0.5) >= backoff_seconds(attempt, random=lambda: 0.5)
