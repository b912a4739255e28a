"""A capacity that was assumed: what the fleet shows disproves it within half a minute, and it rises with care."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from copydesk.autoscaler import (
    Capacity,
    Decision,
    GatewayDemand,
    Limits,
    Observation,
    Pod,
    PodState,
    Policy,
    Rules,
    State,
    decide,
)
from copydesk.autoscaler.disproof import HALF, RISE, Evidence, disprove
from copydesk.autoscaler.refinement import Refinement

ASSUMED = Capacity.assumed(32.0, 1000.0)
POLICY = Policy(ASSUMED, Limits(1, 20), Rules(cold_start_s=10.0))
LEAST = 1.0 / 32.0
EVERY = 2.0
BAD = Evidence(load=0.8, done=0.1, p99_ms=1500.0, slo_ms=1000.0, troubled=False, known=True, ready=2)
GOOD = replace(BAD, load=1.0, done=0.9, p99_ms=300.0)


def after(seconds: float, seen: Evidence, known: Refinement, start: float = 0.0) -> Refinement:
    for step in range(int(seconds / EVERY) + 1):
        known = disprove(known, seen, LEAST, start + step * EVERY)
    return known


BEFORE = Refinement(ready=2)


def test_the_target_is_halved_every_ten_seconds_down_to_a_request_a_pod() -> None:
    assert after(8.0, BAD, BEFORE).factor == 1.0
    assert after(10.0, BAD, BEFORE).factor == HALF
    assert after(22.0, BAD, BEFORE).factor == HALF**2
    assert after(600.0, BAD, BEFORE).factor == LEAST


def test_refusals_and_queues_disprove_as_late_answers_do() -> None:
    assert after(10.0, replace(BAD, p99_ms=200.0, troubled=True), BEFORE).factor == HALF


def test_it_falls_to_just_below_what_a_full_pod_was_seen_to_do() -> None:
    assert after(10.0, replace(BAD, done=0.8), BEFORE).factor == pytest.approx(0.72)


@pytest.mark.parametrize(
    "change",
    [{"done": 1.2}, {"known": False}, {"p99_ms": None}, {"done": None}, {"ready": 0}, {"p99_ms": 900.0}],
)
def test_what_is_not_known_or_more_than_was_asked_disproves_nothing(change: dict[str, float | None]) -> None:
    assert after(600.0, replace(BAD, **change), BEFORE).factor == 1.0  # type: ignore[arg-type]


def test_pods_that_have_just_joined_say_nothing_yet() -> None:
    waiting = after(8.0, BAD, BEFORE)
    assert after(8.0, replace(BAD, ready=3), waiting, 10.0).factor == 1.0


def test_when_more_pods_end_the_trouble_it_goes_on_to_what_full_pods_did() -> None:
    fallen = after(10.0, replace(BAD, done=0.2), BEFORE)
    relieved = replace(BAD, done=0.1, load=0.5, p99_ms=700.0, ready=4)
    assert after(60.0, relieved, fallen, 12.0).factor == pytest.approx(0.18)


def test_a_hiccup_after_which_pods_do_as_much_without_trouble_is_left_at_that() -> None:
    fallen = after(10.0, replace(BAD, done=0.2), BEFORE)
    assert after(60.0, replace(BAD, done=0.4, load=0.5, p99_ms=700.0), fallen, 12.0).factor == HALF


def test_it_rises_in_steps_to_what_failed_and_beyond_only_after_half_an_hour() -> None:
    fallen = replace(BEFORE, factor=0.2, failed=0.25)
    assert after(118.0, GOOD, fallen).factor == 0.2
    assert after(240.0, GOOD, fallen).factor == pytest.approx(0.2 * RISE**2)
    assert after(240.0 + 1798.0, GOOD, fallen).factor == pytest.approx(0.2 * RISE**2)
    assert after(240.0 + 1800.0, GOOD, fallen).factor == pytest.approx(0.2 * RISE**3)
    assert after(50_000.0, GOOD, fallen).factor == 1.0


def test_a_step_that_fails_is_taken_back_and_no_more() -> None:
    risen = after(120.0, GOOD, replace(BEFORE, factor=0.2))
    assert risen.factor > 0.2
    assert after(10.0, BAD, risen, 122.0).factor == 0.2


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.builds(
                Evidence,
                load=st.floats(allow_nan=True),
                done=st.none() | st.floats(0.0, 1e9),
                p99_ms=st.none() | st.floats(0.0, 1e7),
                slo_ms=st.just(1000.0),
                troubled=st.booleans(),
                known=st.booleans(),
                ready=st.integers(0, 3),
            ),
            st.floats(0.0, 2000.0),
        ),
        max_size=60,
    )
)
def test_whatever_is_seen_the_factor_stays_between_a_request_and_the_assumption(
    seen: list[tuple[Evidence, float]],
) -> None:
    known, now = Refinement(), 0.0
    for evidence, later in seen:
        now += later
        known = disprove(known, evidence, LEAST, now)
        assert LEAST <= known.factor <= 1.0


class Fleet:
    """Pods that do a part of what is assumed of them; what they cannot hold for a second is refused."""

    def __init__(self, truth: float, pods: int = 1) -> None:
        self.rate, self.held = ASSUMED.rate * truth, ASSUMED.concurrency * truth
        self.orders = [-1000.0] * pods
        self.state, self.now = State(), 0.0
        self.refused_at: list[float] = []
        self.found: list[Decision] = []

    def run(self, demand: Callable[[float], float], seconds: float, policy: Policy = POLICY) -> Fleet:
        end = self.now + seconds
        while self.now < end:
            decision, self.state = decide(policy, self.state, self._seen(demand(self.now)), self.now)
            self.found.append(decision)
            self.orders = self.orders[: decision.replicas]
            self.orders += [self.now] * (decision.replicas - len(self.orders))
            self.now += EVERY
        return self

    def _seen(self, rate: float) -> Observation:
        pods = tuple(
            Pod(str(number), PodState.READY if self.now - at >= 10.0 else PodState.PENDING, at)
            for number, at in enumerate(self.orders)
        )
        ready = sum(pod.state is PodState.READY for pod in pods)
        use = rate / (ready * self.rate)
        if use > 1.0:
            self.refused_at.append(self.now)
            most = ready * self.rate
            report = GatewayDemand("a", self.now, 1.3 * most, 0.0, rate - most, 1.3, 1700.0, most)
        else:
            late_ms = 500.0 + 400.0 * use**4
            report = GatewayDemand("a", self.now, ready * self.held * use, 0.0, 0.0, 0.5, late_ms, rate)
        return Observation(len(self.orders), (report,), pods)


@pytest.mark.parametrize("demand", [20.0, 60.0, 150.0])
def test_a_fleet_whose_pods_do_a_fifth_of_what_was_assumed_is_soon_large_enough_and_stays(demand: float) -> None:
    fleet = Fleet(0.2).run(lambda now: demand, 3600.0)
    needed = demand / fleet.rate
    assert max(fleet.refused_at) <= 120.0
    assert EVERY * len(fleet.refused_at) <= 50.0
    settled = [one.replicas for one in fleet.found[600:]]
    assert needed <= min(settled)
    assert max(settled) <= max(2.0 * needed, needed + 2.0)
    moves = [after - before for before, after in pairwise(settled) if after != before]
    assert sum(1 for before, after in pairwise(moves) if before * after < 0) <= 2


def test_the_reason_says_that_too_much_was_assumed() -> None:
    fleet = Fleet(0.2).run(lambda now: 60.0, 120.0)
    assert any("what was assumed of a pod was found too high" in one.reason for one in fleet.found)
    assert fleet.found[-1].inputs.refinement < 0.4


def test_pods_that_do_what_was_assumed_are_left_alone() -> None:
    fleet = Fleet(1.0, pods=2).run(lambda now: 90.0, 1200.0)
    assert fleet.state.refinement.factor == 1.0
    assert {one.replicas for one in fleet.found} == {2}


def test_a_measured_capacity_is_not_disproved_so() -> None:
    fleet = Fleet(0.2).run(lambda now: 60.0, 300.0, replace(POLICY, capacity=replace(ASSUMED, measured=True)))
    assert fleet.state.refinement.factor >= 0.6


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(0.0, 2000.0), min_size=5, max_size=30),
    st.floats(1.0, 1.5),
    st.floats(0.0, 300.0),
    st.floats(LEAST, 1.0),
)
def test_more_demand_never_means_fewer_pods_whatever_was_learned(
    loads: list[float], factor: float, shed: float, learned: float
) -> None:
    state = State(refinement=Refinement(learned))
    policy = Policy(ASSUMED, Limits(1, 400))
    pods = tuple(Pod(str(number), PodState.READY, -1000.0) for number in range(40))
    for step, load in enumerate(loads):
        now = 100.0 + step * EVERY
        one = Observation(40, (GatewayDemand("a", now, load, 0.0, shed, 0.2, 300.0),), pods)
        more = GatewayDemand("a", now, factor * load, 0.0, factor * shed, 0.2, 300.0)
        large, _ = decide(policy, state, replace(one, gateways=(more,)), now)
        small, state = decide(policy, state, one, now)
        assert large.replicas >= small.replicas


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(["late", "gone"]), min_size=30, max_size=60), st.floats(0.0, 150.0))
def test_missing_data_never_shrinks_a_fleet_that_has_learned(events: list[str], load: float) -> None:
    fleet = Fleet(0.2).run(lambda now: 60.0, 200.0)
    state, size = fleet.state, len(fleet.orders)
    pods = tuple(Pod(str(number), PodState.READY, -1000.0) for number in range(size))
    for step, event in enumerate(events):
        now = 202.0 + step * EVERY
        heard = (GatewayDemand("a", now - 4.0, load, 0.0),) if event == "late" else ()
        decision, state = decide(POLICY, state, Observation(size, heard, pods), now)
        assert decision.replicas >= size
        size = decision.replicas
