"""Pods in virtual time: cold starts as they are distributed, starts that never end, deaths, and who goes first."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import copydesk.autoscaler as autoscaler
from copydesk.autoscaler.observation import PodState
from copydesk.simulator.fleet import Fleet, Luck
from copydesk.simulator.ours import Copydesk
from copydesk.simulator.profile import ASSUMED_POD, Profile
from copydesk.simulator.run import run
from copydesk.simulator.score import score

POD = Profile.of(ASSUMED_POD)
WARMING = POD.warming()
SURE = Luck(fail_starts=0.0, mean_life_h=1e9)


def fleet(luck: Luck, size: int) -> Fleet:
    return Fleet.warm(luck, WARMING, size)


def test_cold_starts_have_the_median_and_the_ninetieth_percentile_that_were_asked_for() -> None:
    luck = Luck(cold_start_median_s=35.0, cold_start_p90_s=60.0, fail_starts=0.0)
    starts = np.array([luck.draw(number)[0] for number in range(4000)])
    assert np.quantile(starts, 0.5) == pytest.approx(35.0, rel=0.05)
    assert np.quantile(starts, 0.9) == pytest.approx(60.0, rel=0.05)
    assert starts.mean() == pytest.approx(luck.mean_cold_start_s, rel=0.05)


def test_so_many_starts_never_end_and_pods_live_as_long_as_that() -> None:
    luck = Luck(fail_starts=0.1, mean_life_h=50.0)
    drawn = [luck.draw(number) for number in range(4000)]
    assert sum(math.isinf(start) for start, _ in drawn) / 4000 == pytest.approx(0.1, rel=0.15)
    assert np.mean([life for _, life in drawn]) / 3600.0 == pytest.approx(50.0, rel=0.06)


def test_the_same_pod_has_the_same_luck_under_any_policy_and_another_one_with_another_seed() -> None:
    assert Luck(seed=3).draw(7) == Luck(seed=3).draw(7)
    assert Luck(seed=3).draw(7) != Luck(seed=4).draw(7)


def test_a_pod_works_once_its_start_ends() -> None:
    here = fleet(SURE, 2)
    here.resize(3, 10.0)
    start, _ = SURE.draw(2)
    here.advance(10.0 + start - 0.01)
    assert (here.ready, here.count) == (2, 3)
    here.advance(10.0 + start)
    assert here.ready == 3
    assert 2.0 < here.working(10.0 + start) < 3.0
    assert here.working(10.0 + start + 10.0) == 3.0


def test_a_start_that_never_ends_is_given_up_and_begun_anew() -> None:
    luck = replace(SURE, fail_starts=1.0, give_up_s=600.0)
    here = fleet(luck, 1)
    here.resize(2, 0.0)
    here.advance(599.0)
    (first,) = [pod for pod in here.seen() if pod.state is PodState.PENDING]
    here.advance(600.0)
    (second,) = [pod for pod in here.seen() if pod.state is PodState.PENDING]
    assert (here.ready, here.count) == (1, 2)
    assert second.id != first.id
    assert second.since == 600.0


def test_a_pod_that_dies_is_replaced_by_one_that_has_to_start() -> None:
    here = fleet(replace(SURE, mean_life_h=0.1), 50)
    here.advance(120.0)
    assert here.count == 50
    assert 0 < here.ready < 50


def test_those_that_do_not_work_yet_go_first_and_then_the_youngest() -> None:
    here = fleet(SURE, 3)
    here.resize(5, 0.0)
    here.resize(4, 1.0)
    assert here.ready == 3
    here.resize(2, 2.0)
    assert [pod.id for pod in here.seen()] == ["0", "1"]
    assert here.moves == 3


def outcome(luck: Luck, seconds: int = 1800) -> tuple[int, float]:
    """Violation seconds and pod hours of a steady load of 20 pods' worth."""
    arrivals = np.full(seconds, 20.0 * POD.capacity.rate)
    rules = autoscaler.Rules(cold_start_s=luck.cold_start_p90_s)
    policy = autoscaler.Policy(POD.capacity, autoscaler.Limits(), rules)
    found = score(run(arrivals, POD, Copydesk(policy), luck), POD.capacity.slo_ms, 4.0)
    return found.slo_violation_seconds, found.pod_hours


def test_pods_that_fail_are_made_up_for_without_a_violation() -> None:
    sure, hours = outcome(SURE)
    assert sure == 0
    # Each pod lives for two hours: one dies every five minutes; and of the new ones each fifth never starts.
    failing, more = outcome(replace(SURE, fail_starts=0.2, mean_life_h=2.0))
    assert failing == 0
    assert hours <= more < 1.25 * hours
