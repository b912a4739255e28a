"""One model in the hands of the autoscaler: terms, silences, and a candidate beside the live configuration."""

from __future__ import annotations

import random
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from copydesk.autoscaler.capacity import Capacity
from copydesk.autoscaler.limits import Limits
from copydesk.autoscaler.log_entry import Entry
from copydesk.autoscaler.pilot import Pilot, Turn
from copydesk.autoscaler.plan import CapacitySource, Configuration, Plan
from copydesk.autoscaler.rules import Rules
from copydesk.autoscaler.virtual_fleet import VirtualFleet
from copydesk.common.messages import Endpoint, EndpointsSnapshot, EndpointState
from tests.fixtures.scaling_reports import demand_at, load_at

SLOTS, RATE = 20.0, 100.0
LIVE = Configuration(
    limits=Limits(1, 50), rules=Rules(cold_start_s=10.0), source=CapacitySource(concurrency=SLOTS, rate=RATE)
)
PLAN = Plan("gec-en", LIVE)
EPOCH = 1_764_500_000_000


class Flight:
    """A pilot and a fleet whose pods work at once, which does what the pilot says while that leads."""

    def __init__(self, plan: Plan = PLAN, pods: int = 5) -> None:
        self.pilot = Pilot(plan)
        self.size = pods
        self.now = 1000.0
        self.requests = 40.0
        self.shed = 0
        self.silent = False
        self.turns: list[Turn] = []

    def fly(self, seconds: float, term: int | None = EPOCH) -> Turn:
        """Let time pass, with a report a second and a decision every two."""
        for second in range(round(seconds)):
            self.now += 1.0
            self._report()
            if second % 2:
                self._turn(term)
        return self.turns[-1]

    def _report(self) -> None:
        observer = self.pilot.observer
        pods = tuple(
            Endpoint(id=f"p{number}", host="h", port=1, state=EndpointState.READY) for number in range(self.size)
        )
        snapshot = EndpointsSnapshot(
            model="gec-en", epoch=1, generation=int(self.now), sent_at=self.now, endpoints=pods
        )
        observer.on_snapshot(snapshot, self.now)
        if self.silent:
            return
        observer.on_demand(demand_at(self.now, self.requests, shed=self.shed), self.now)
        for pod in pods:
            observer.on_load(load_at(self.now, pod.id, self.requests / self.size), self.now)

    def _turn(self, term: int | None) -> None:
        turn = self.pilot.turn(self.size, self.now, term)
        assert turn is not None
        self.turns.append(turn)
        if term is not None:
            self.size = turn.decision.replicas


def rules(turns: list[Turn]) -> set[str]:
    return {turn.live.rule for turn in turns}


def test_who_stands_by_decides_for_itself_and_begins_its_term_by_the_size_that_there_is() -> None:
    flight = Flight(pods=9)
    flight.fly(400.0, term=None)
    assert flight.turns[-1].decision.replicas < 9
    assert {turn.live.epoch for turn in flight.turns} == {0}
    flight.turns.clear()
    flight.fly(58.0)
    assert {turn.decision.replicas for turn in flight.turns} == {9}
    assert rules(flight.turns) == {"hold_new_leader"}
    assert [turn.live.sequence for turn in flight.turns] == list(range(1, 30))
    assert {turn.live.epoch for turn in flight.turns} == {EPOCH}
    flight.fly(10.0)
    assert flight.size < 9


def test_each_new_term_holds_again() -> None:
    flight = Flight(pods=9)
    flight.fly(70.0)
    flight.size = 9
    flight.turns.clear()
    flight.fly(20.0, term=EPOCH + 1)
    assert rules(flight.turns) == {"hold_new_leader"}


def test_after_a_long_silence_nothing_shrinks_for_a_while() -> None:
    flight = Flight(pods=5)
    flight.fly(100.0)
    flight.silent = True
    size = flight.size
    flight.fly(700.0)
    assert flight.turns[-1].live.rule == "hold_silent"
    flight.silent, flight.requests = False, 1.0
    flight.turns.clear()
    flight.fly(58.0)
    assert {turn.decision.replicas for turn in flight.turns} == {size}
    flight.fly(20.0)
    assert flight.size < size


def test_nothing_is_decided_until_somebody_says_what_a_pod_can_do() -> None:
    pilot = Pilot(replace(PLAN, live=replace(LIVE, source=CapacitySource())))
    assert pilot.turn(3, 1.0, EPOCH) is None
    pilot.observer.on_load(load_at(2.0, "p0", 4.0), 2.0)
    policy = pilot.policy(2.0)
    assert policy is not None
    assert policy.capacity == Capacity(8.0, 16.0, 1000.0, (0.0, 8.0), (0.0, 1.0), measured=False)


@pytest.mark.parametrize(
    ("source", "slots", "found"),
    [
        (CapacitySource(), None, None),
        (CapacitySource(), 8, (8.0, 16.0)),
        (CapacitySource(concurrency=10.0), 8, (10.0, 20.0)),
        (CapacitySource(rate=30.0), None, (15.0, 30.0)),
        (CapacitySource(concurrency=10.0, rate=30.0), 8, (10.0, 30.0)),
        (CapacitySource(capacity=Capacity(3.0, 4.0, 500.0, (0.0, 3.0), (0.0, 1.0))), 8, (3.0, 4.0)),
    ],
)
def test_the_capacity_of_a_pod_is_certified_or_assumed(
    source: CapacitySource, slots: int | None, found: tuple[float, float] | None
) -> None:
    capacity = source.given(slots)
    assert found == (None if capacity is None else (capacity.concurrency, capacity.rate))


# The candidate.


def beside(**changes: object) -> Plan:
    return replace(PLAN, candidate=replace(LIVE, name="other", **changes))  # type: ignore[arg-type]


def shadow(turn: Turn) -> Entry:
    assert turn.shadow is not None
    return turn.shadow


def test_a_candidate_that_is_the_same_decides_the_same() -> None:
    quick = replace(LIVE, rules=Rules(cold_start_s=0.5))  # real pods work at once here, and so shall virtual ones
    flight = Flight(replace(PLAN, live=quick, candidate=replace(quick, name="other")), pods=3)
    flight.fly(100.0)
    flight.requests = 150.0
    flight.fly(200.0)
    flight.requests = 20.0
    flight.fly(900.0)
    assert len({turn.decision.replicas for turn in flight.turns}) > 4
    same = [
        (shadow(turn).replicas, shadow(turn).rule) == (turn.live.replicas, turn.live.rule) for turn in flight.turns
    ]
    assert all(same)


def test_a_candidate_with_fewer_pods_is_shown_its_own_shortage() -> None:
    flight = Flight(beside(limits=Limits(1, 2)), pods=5)
    flight.requests = 80.0
    turn = flight.fly(700.0)
    assert turn.decision.replicas >= 5
    made = shadow(turn)
    assert (made.replicas, made.rule) == (2, "limit")
    assert made.virtual is not None
    assert made.virtual.ready == 2
    assert made.virtual.work == pytest.approx(4.0)
    # What its two pods could not do would wait, so that it sees as much demand as the live one.
    assert made.inputs["demand"] == pytest.approx(4.0)
    assert turn.live.inputs["demand"] == pytest.approx(4.0)


def test_a_candidate_with_more_pods_sees_no_less_demand_than_there_is() -> None:
    flight = Flight(beside(limits=Limits(20, 50)), pods=5)
    made = shadow(flight.fly(60.0))
    assert made.replicas == 20
    assert made.inputs["demand"] == pytest.approx(flight.turns[-1].live.inputs["demand"])
    assert made.policy == "other"


def test_a_candidate_of_other_pods_counts_in_its_own() -> None:
    half = CapacitySource(concurrency=SLOTS / 2, rate=RATE / 2)
    flight = Flight(beside(source=half), pods=5)
    turn = flight.fly(100.0)
    assert shadow(turn).inputs["demand"] == pytest.approx(2.0 * turn.live.inputs["demand"])


def test_virtual_pods_work_one_cold_start_after_their_order_and_the_newest_go_first() -> None:
    fleet = VirtualFleet.like(2).resized(4, 100.0)
    assert [fleet.ready(10.0, now) for now in (100.0, 109.9, 110.0)] == [2, 2, 4]
    assert fleet.resized(3, 101.0).resized(4, 105.0).orders == (*VirtualFleet.like(2).orders, 100.0, 105.0)


# Losses.


@settings(max_examples=25)
@given(st.randoms(use_true_random=False), st.floats(0.0, 0.95))
def test_whatever_reports_are_lost_no_fleet_is_made_smaller_than_its_demand(
    luck: random.Random, lost: float
) -> None:
    flight = Flight(pods=3)
    flight.requests = 45.0  # of 100 a second and 20 at a time: three pods at 85 %
    for _ in range(150):
        flight.silent = luck.random() < lost
        flight.fly(2.0)
    assert all(turn.decision.replicas >= 3 for turn in flight.turns)


def test_a_line_names_a_hundred_silent_gateways_and_no_more() -> None:
    flight = Flight()
    for number in range(300):
        report = msgspec.structs.replace(demand_at(flight.now, 0.1), gateway=f"old-{number}")
        flight.pilot.observer.on_demand(report, flight.now)
    turn = flight.fly(20.0)
    assert len(turn.decision.inputs.stale_gateways) == 300
    assert len(turn.live.inputs["stale_gateways"]) == 100
    assert "and 297 more" in turn.live.reason


def test_a_candidate_begins_with_no_more_pods_than_can_be_remembered() -> None:
    assert VirtualFleet.like(2**31 - 1).size == 10_000
