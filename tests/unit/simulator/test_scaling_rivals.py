"""The rules of others, each held against what its documentation and its source say."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from copydesk.autoscaler import Limits
from copydesk.simulator.fluid import Flow
from copydesk.simulator.policy import Policy, View
from copydesk.simulator.rivals import Hpa, Kpa, Ray

LIMITS = Limits(1, 1000)
TARGET = 10.0


def view(load: float, size: int, ready: int | None = None) -> View:
    flow = Flow(0.0, 0.0, load, 0.0, 0.2, 200.0, 400.0, 0.0)
    return View(flow, size, (), size, size if ready is None else ready)


def sizes(policy: Policy, load: float, size: int, seconds: int, start: int = 0) -> Iterator[int]:
    """Let pods be there as soon as they are asked for."""
    for second in range(start, start + seconds):
        size = policy.decide(view(load, size), second + 1.0)
        yield size


def last(policy: Policy, load: float, size: int, seconds: int, start: int = 0) -> int:
    *_, found = sizes(policy, load, size, seconds, start)
    return found


def test_hpa_looks_every_fifteen_seconds() -> None:
    found = list(sizes(Hpa(TARGET, LIMITS), 150.0, 10, 15))
    assert found == [10] * 14 + [15]


@pytest.mark.parametrize(("load", "size"), [(109.0, 10), (91.0, 10), (111.0, 12)])
def test_hpa_leaves_what_is_within_its_tolerance(load: float, size: int) -> None:
    assert last(Hpa(TARGET, LIMITS), load, 10, 15) == size


@pytest.mark.parametrize(("before", "after"), [(2, 6), (10, 20), (40, 80)])
def test_hpa_grows_by_four_pods_or_doubles_whichever_is_more(before: int, after: int) -> None:
    assert last(Hpa(TARGET, LIMITS), 10_000.0, before, 15) == after


def test_hpa_may_be_allowed_to_grow_faster() -> None:
    assert last(Hpa(TARGET, LIMITS, up_ratio=3.0), 10_000.0, 10, 15) == 30


def test_hpa_shrinks_to_the_highest_recommendation_of_five_minutes() -> None:
    hpa = Hpa(TARGET, LIMITS)
    assert last(hpa, 100.0, 10, 15) == 10
    assert last(hpa, 20.0, 10, 285, start=15) == 10
    assert last(hpa, 20.0, 10, 15, start=300) == 2


def test_hpa_counts_pods_that_start_as_idle_when_it_would_grow_and_ignores_them_when_it_would_shrink() -> None:
    hpa = Hpa(TARGET, LIMITS)
    for second in range(15):
        grown = hpa.decide(view(150.0, 20, ready=10), second + 1.0)
    assert grown == 20  # 150 over 20 pods is below the target: no growth, and no shrinking either
    hpa = Hpa(TARGET, LIMITS)
    for second in range(15):
        more = hpa.decide(view(300.0, 20, ready=10), second + 1.0)
    assert more == 30


def calm_kpa(load: float, size: int) -> Kpa:
    """One that has left the panic in which it begins."""
    kpa = Kpa(TARGET, LIMITS)
    last(kpa, load, size, 70)
    return kpa


def test_kpa_begins_in_panic_and_so_does_not_shrink_for_a_minute() -> None:
    kpa = Kpa(TARGET, LIMITS)
    assert last(kpa, 50.0, 10, 60) == 10
    assert last(kpa, 50.0, 10, 10, start=60) == 5


def test_kpa_panics_at_twice_what_is_ready_and_then_only_grows() -> None:
    kpa = calm_kpa(100.0, 10)
    found = list(sizes(kpa, 250.0, 10, 8, start=70))
    assert found[-1] == 25
    assert last(kpa, 100.0, 25, 58, start=78) == 25
    assert last(kpa, 100.0, 25, 10, start=136) < 25


def test_kpa_without_panic_follows_the_mean_of_a_minute() -> None:
    kpa = calm_kpa(100.0, 10)
    assert last(kpa, 150.0, 10, 30, start=70) == 13
    assert last(kpa, 150.0, 13, 30, start=100) == 15


def test_kpa_shrinks_to_no_less_than_half_at_once() -> None:
    kpa = calm_kpa(400.0, 40)
    assert [kpa.decide(view(0.0, 40), 71.0 + second) for second in range(70)][-1] == 20


def test_kpa_delays_shrinking_when_told_to() -> None:
    kpa = Kpa(TARGET, LIMITS, down_delay_s=300)
    last(kpa, 100.0, 10, 70)
    assert last(kpa, 50.0, 10, 290, start=70) == 10
    assert last(kpa, 50.0, 10, 80, start=360) == 5


def test_the_panic_window_of_kpa_is_a_tenth_of_the_stable_one() -> None:
    kpa = Kpa(TARGET, LIMITS, stable_s=30)
    last(kpa, 100.0, 10, 40)
    assert last(kpa, 300.0, 10, 4, start=40) == 30


def test_ray_waits_for_half_a_minute_before_it_grows() -> None:
    found = list(sizes(Ray(TARGET, LIMITS), 200.0, 10, 32))
    assert found[:30] == [10] * 30
    assert found[-1] == 20


def test_ray_waits_for_ten_minutes_before_it_shrinks_and_begins_anew_when_it_would_not() -> None:
    ray = Ray(TARGET, LIMITS)
    assert last(ray, 50.0, 10, 590) == 10
    assert last(ray, 100.0, 10, 60, start=590) == 10
    assert last(ray, 50.0, 10, 590, start=650) == 10
    assert last(ray, 50.0, 10, 60, start=1240) == 5


def test_ray_shrinks_by_its_factor_and_by_one_where_that_rounds_to_nothing() -> None:
    ray = Ray(TARGET, LIMITS, down_factor=0.3)
    assert last(ray, 50.0, 10, 605) == 9  # 10 - 0.3 x 5, rounded up
    stuck = Ray(TARGET, LIMITS, down_factor=0.3)
    assert last(stuck, 80.0, 10, 605) == 9  # 9.4 would round to 10


def test_ray_compares_what_runs_with_the_target_not_what_was_asked_for() -> None:
    ray = Ray(TARGET, LIMITS, up_s=0.0)
    assert ray.decide(view(200.0, 20, ready=10), 1.0) == 20
    assert ray.decide(view(400.0, 20, ready=10), 2.0) == 30
    assert ray.decide(view(400.0, 20, ready=0), 3.0) == 20


@pytest.mark.parametrize("policy", [Hpa, Kpa, Ray])
def test_nobody_leaves_the_limits(policy: type[Hpa] | type[Kpa] | type[Ray]) -> None:
    assert max(sizes(policy(TARGET, Limits(5, 20)), 100_000.0, 10, 120)) == 20
    assert min(sizes(policy(TARGET, Limits(5, 20)), 0.0, 10, 1500)) == 5
