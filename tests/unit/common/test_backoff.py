"""Waiting before the next attempt."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from copydesk.common.backoff import backoff_seconds


@given(st.integers(0, 10_000), st.floats(0, 1, exclude_max=True))
def test_backoff_is_jittered_within_the_upper_half_and_capped(attempt: int, draw: float) -> None:
    delay = backoff_seconds(attempt, first=0.05, cap=2.0, share=draw)
    ceiling = min(2.0, 0.05 * 2 ** min(attempt, 40))
    assert ceiling / 2 <= delay <= ceiling


@given(st.integers(0, 100))
def test_backoff_never_shrinks_from_one_attempt_to_the_next(attempt: int) -> None:
    delays = [backoff_seconds(n, first=0.05, cap=2.0, share=0.5) for n in (attempt, attempt + 1)]
    assert delays == sorted(delays)
