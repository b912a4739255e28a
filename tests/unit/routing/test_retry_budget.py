"""The limit on retries."""

from __future__ import annotations

import pytest

from copydesk.routing import RetryBudget


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
