"""Who is left alone for a while, and when it is over."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.routing import Conduct, OutlierRules, Outliers, Reason, usable

RULES = OutlierRules()
NOW = 1000.0


def well(name: str, now: float = NOW) -> Conduct:
    return Conduct(id=name, failures=0, mean_ms=100.0, samples=50, silent=0.05, answered_at=now - 0.05)


def fleet(*odd: Conduct, count: int = 5, now: float = NOW) -> list[Conduct]:
    return [*odd, *(well(f"well-{i}", now) for i in range(count - len(odd)))]


def reviewed(*odd: Conduct, p99_ms: float | None = 200.0) -> tuple[tuple[str, Reason], ...]:
    return Outliers(RULES).review(fleet(*odd), p99_ms, NOW).ejected


def test_a_fleet_that_does_well_is_left_alone() -> None:
    assert reviewed() == ()


def test_failures_in_a_row_eject() -> None:
    assert reviewed(replace(well("bad"), failures=4)) == ()
    assert reviewed(replace(well("bad"), failures=5)) == (("bad", Reason.FAILURES),)


def test_a_latency_far_above_the_median_ejects_once_there_are_enough_answers() -> None:
    assert reviewed(replace(well("slow"), mean_ms=1000.0)) == (("slow", Reason.LATENCY),)
    assert reviewed(replace(well("slow"), mean_ms=1000.0, samples=9)) == ()


def test_a_pod_half_as_fast_is_the_balancers_to_deal_with() -> None:
    assert reviewed(replace(well("slow"), mean_ms=200.0)) == ()


def test_milliseconds_are_no_reason() -> None:
    quick = [replace(well(f"p{i}"), mean_ms=1.0) for i in range(4)]
    assert Outliers(RULES).review([*quick, replace(well("slow"), mean_ms=20.0)], 5.0, NOW).ejected == ()


def test_of_two_pods_the_slow_one_is_known_too() -> None:
    pair = [well("fast"), replace(well("slow"), mean_ms=1000.0)]
    assert Outliers(RULES).review(pair, None, NOW).ejected == (("slow", Reason.LATENCY),)


def silent(seconds: float) -> Conduct:
    return Conduct(id="hung", failures=0, mean_ms=100.0, samples=50, silent=seconds, answered_at=NOW - seconds)


@pytest.mark.parametrize(
    ("seconds", "p99_ms", "ejected"),
    [(0.4, 200.0, False), (0.6, 200.0, True), (0.6, 400.0, False), (0.9, 400.0, True), (0.6, None, True)],
)
def test_silence_ejects_after_twice_what_the_slowest_take(
    seconds: float, p99_ms: float | None, ejected: bool
) -> None:
    assert reviewed(silent(seconds), p99_ms=p99_ms) == ((("hung", Reason.SILENCE),) if ejected else ())


def test_silence_of_all_is_no_ones_fault() -> None:
    pods = [replace(silent(5.0), id=f"p{i}") for i in range(4)]
    assert Outliers(RULES).review(pods, 200.0, NOW).ejected == ()


def test_an_ejection_ends_after_its_time_and_each_further_one_takes_twice_as_long() -> None:
    outliers, now = Outliers(RULES), NOW
    for seconds in (2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0):
        bad = replace(well("bad", now), failures=5)
        assert outliers.review(fleet(bad, now=now), None, now).ejected == (("bad", Reason.FAILURES),)
        good = [well("bad", now), *fleet(now=now)]
        assert outliers.review(good, None, now + seconds - 0.01).released == ()
        now += seconds
        assert outliers.review(good, None, now).released == ("bad",)
        assert "bad" not in outliers.ejected


def test_long_good_conduct_makes_the_next_ejection_the_first_again() -> None:
    outliers = Outliers(RULES)
    outliers.review(fleet(replace(well("bad"), failures=5)), None, NOW)
    outliers.review([well("bad"), *fleet()], None, NOW + 2.0)
    outliers.review(fleet(replace(well("bad"), failures=5)), None, NOW + 70.0)
    assert outliers.ejected["bad"].times == 1


def test_a_pod_whose_time_is_up_stays_out_while_the_evidence_stands() -> None:
    outliers = Outliers(RULES)
    outliers.review(fleet(silent(1.0)), 200.0, NOW)
    later = replace(silent(3.0), answered_at=NOW - 1.0)
    verdicts = outliers.review(fleet(later, now=NOW + 2.0), 200.0, NOW + 2.0)
    assert verdicts.ejected == (("hung", Reason.SILENCE),)
    assert outliers.ejected["hung"].times == 2


def test_a_silent_pod_is_back_as_soon_as_it_has_answered() -> None:
    outliers = Outliers(RULES)
    outliers.review(fleet(silent(1.0)), 200.0, NOW)
    spoke = replace(silent(0.0), answered_at=NOW + 0.1)
    assert outliers.review(fleet(spoke, now=NOW + 0.1), 200.0, NOW + 0.1).released == ("hung",)


def test_a_silent_pod_whose_requests_were_given_up_is_not_back_for_that() -> None:
    outliers = Outliers(RULES)
    outliers.review(fleet(silent(1.0)), 200.0, NOW)
    gave_up = replace(silent(0.0), answered_at=NOW - 1.0)
    assert outliers.review(fleet(gave_up, now=NOW + 0.1), 200.0, NOW + 0.1).released == ()


def test_pods_that_are_gone_are_forgotten() -> None:
    outliers = Outliers(RULES)
    outliers.review(fleet(replace(well("bad"), failures=5)), None, NOW)
    outliers.review(fleet(), None, NOW + 0.1)
    assert outliers.ejected == {}


@given(st.lists(st.booleans(), max_size=40))
def test_never_more_than_half_are_left_out_and_in_panic_none(ejected: list[bool]) -> None:
    pods = [f"p{i}" for i in range(len(ejected))]
    out = {pod for pod, flag in zip(pods, ejected, strict=True) if flag}
    used, panic = usable(pods, out)
    assert 2 * len(used) >= len(pods)
    assert panic is (2 * len(out) > len(pods))
    assert set(used) == (set(pods) if panic else set(pods) - out)


conducts = st.lists(
    st.builds(
        Conduct,
        id=st.integers(0, 9).map(str),
        failures=st.integers(0, 9),
        mean_ms=st.floats(0, 1e5),
        samples=st.integers(0, 100),
        silent=st.floats(0, 100),
        answered_at=st.floats(0, 100) | st.just(-inf),
    ),
    max_size=10,
    unique_by=lambda conduct: conduct.id,
)


@given(st.lists(st.tuples(conducts, st.floats(0, 10)), max_size=20))
def test_whatever_is_seen_an_ejection_is_bounded_and_only_of_pods_there_are(
    script: list[tuple[list[Conduct], float]],
) -> None:
    outliers, now = Outliers(RULES), 100.0
    for seen, wait in script:
        now += wait
        verdicts = outliers.review(seen, 100.0, now)
        assert set(outliers.ejected) <= {one.id for one in seen}
        assert all(ejection.until <= now + RULES.longest for ejection in outliers.ejected.values())
        assert {name for name, _ in verdicts.ejected} <= set(outliers.ejected)
        assert not set(verdicts.released) & set(outliers.ejected)


def test_versions_are_slow_by_the_measure_of_their_own_pods_only() -> None:
    quick = [replace(well(f"new-{number}"), mean_ms=10.0, version="new") for number in range(8)]
    slow = replace(well("new-slow"), mean_ms=90.0, version="new")
    verdicts = Outliers().review([*fleet(count=3), *quick, slow], 200.0, NOW)
    assert verdicts.ejected == (("new-slow", Reason.LATENCY),)


def test_a_version_that_is_silent_is_found_out_by_the_answers_of_the_other() -> None:
    hung = replace(silent(1.5), version="new")
    assert Outliers().review([*fleet(), hung], 200.0, NOW).ejected == (("hung", Reason.SILENCE),)
