"""The rule about rates, as a function of moments."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from copydesk.gateway.rates import Rate, rule

RATES = st.builds(Rate, interval=st.integers(1, 10_000_000), burst=st.integers(1, 50))
GAPS = st.lists(st.integers(0, 20_000_000), min_size=1, max_size=200)
START = 1_800_000_000_000_000


def passed(rate: Rate, gaps: list[int], due: int = 0) -> list[int]:
    """The moments of the requests that pass, of those that come so long after one another."""
    now, moments = START, []
    for gap in gaps:
        now += gap
        due, wait = rule(due, now, rate)
        if wait == 0:
            moments.append(now)
    return moments


@given(RATES, GAPS)
def test_no_stretch_of_time_has_more_than_the_burst_and_one_an_interval(rate: Rate, gaps: list[int]) -> None:
    moments = passed(rate, gaps)
    for first, start in enumerate(moments):
        for count, moment in enumerate(moments[first:], start=1):
            assert count <= rate.burst + (moment - start) // rate.interval


@given(RATES)
def test_the_whole_burst_passes_at_once_and_nothing_more(rate: Rate) -> None:
    assert len(passed(rate, [0] * (rate.burst + 10))) == rate.burst


@given(RATES, st.integers(1, 100))
def test_whoever_keeps_to_the_rate_is_never_refused(rate: Rate, count: int) -> None:
    assert len(passed(rate, [rate.interval] * count)) == count


@given(RATES, GAPS)
def test_whoever_waits_as_told_passes_and_a_moment_earlier_does_not(rate: Rate, gaps: list[int]) -> None:
    now, due = START, 0
    for gap in gaps:
        now += gap
        due, wait = rule(due, now, rate)
        if wait:
            assert rule(due, now + wait - 1, rate).wait == 1
            assert rule(due, now + wait, rate).wait == 0


@given(RATES, st.integers(0, START), st.integers(0, START), st.integers(0, 100))
def test_more_use_never_means_less_waiting(rate: Rate, now: int, due: int, more: int) -> None:
    assert rule(due + more, now, rate).wait >= rule(due, now, rate).wait
    assert rule(due, now + more, rate).wait <= rule(due, now, rate).wait or due > now + rate.interval * rate.burst


@given(RATES, GAPS, st.integers(0, 10**12))
def test_a_clock_that_is_set_back_locks_nobody_out_for_longer_than_an_interval(
    rate: Rate, gaps: list[int], back: int
) -> None:
    now, due = START, 0
    for gap in gaps:
        now += gap
        due = rule(due, now, rate).due
    assert rule(due, now - back, rate).wait <= rate.interval


@given(st.floats(0.001, 100_000), st.none() | st.integers(1, 1000))
def test_a_rate_is_never_faster_than_was_said(per_second: float, burst: int | None) -> None:
    rate = Rate.of(per_second, burst)
    assert 1_000_000 / rate.interval <= per_second * (1 + 1e-12)
    assert rate.burst == (burst or max(1, int(per_second)))
