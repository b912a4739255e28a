"""From messages to observations: whatever arrives, in whatever order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from copydesk.autoscaler import PodState, pod_roster
from copydesk.autoscaler import demand_roster as roster
from copydesk.autoscaler.dropped import Dropped
from copydesk.autoscaler.latency import NOTHING, difference
from copydesk.autoscaler.observation import GatewayDemand, Observation
from copydesk.autoscaler.observer import Observer
from copydesk.common.latency import BUCKETS, percentile_ms
from copydesk.common.messages import (
    LATENCY_BOUNDS_MS,
    DemandReport,
    Endpoint,
    EndpointsSnapshot,
    EndpointState,
    Latency,
    LoadReport,
)

COLD_START_S = 30.0
HUGE = 2**62


def spread(**counts: int) -> tuple[int, ...]:
    """Counts by upper bound: `spread(ms300=5)`."""
    found = [0] * BUCKETS
    for name, count in counts.items():
        found[LATENCY_BOUNDS_MS.index(int(name.removeprefix("ms")))] = count
    return tuple(found)


def demand(sequence: int = 1, **changes: Any) -> DemandReport:
    fields: dict[str, Any] = {
        "model": "gec-en",
        "gateway": "g1",
        "sent_at": 1000.0 + sequence,
        "started_at": 100.0,
        "interval_s": 1.0,
        "in_flight": 5.0,
        "queued": 0.0,
        "completed": 0,
        "failed": 0,
        "shed": 0,
        "latency": Latency(counts=NOTHING, total_s=0.0, at_pods_s=0.0),
    }
    return DemandReport(sequence=sequence, **{**fields, **changes})


def snapshot(
    generation: int = 1, epoch: int = 1, *, stale: bool = False, **pods: EndpointState
) -> EndpointsSnapshot:
    endpoints = tuple(Endpoint(id=pod, host="h", port=1, state=state) for pod, state in pods.items())
    return EndpointsSnapshot(
        model="gec-en", epoch=epoch, generation=generation, sent_at=0.0, endpoints=endpoints, stale=stale
    )


def load(pod: str, sequence: int = 1, **changes: Any) -> LoadReport:
    fields: dict[str, Any] = {
        "model": "gec-en",
        "sent_at": 0.0,
        "started_at": 5.0,
        "host": "h",
        "port": 1,
        "state": EndpointState.READY,
        "running": 3,
        "queued": 1,
        "capacity": 8,
        "step_ms": 1.0,
        "digest": "sha256:x",
    }
    return LoadReport(pod=pod, sequence=sequence, **{**fields, **changes})


@pytest.fixture
def observer() -> Observer:
    return Observer("gec-en", COLD_START_S)


READY, WARMING, DRAINING = EndpointState.READY, EndpointState.WARMING, EndpointState.DRAINING


# Gateways.


def only(observer: Observer, now: float = 2.0) -> GatewayDemand:
    (found,) = observer.observe(1, now).gateways
    return found


def test_a_gateway_that_was_never_heard_is_not_invented(observer: Observer) -> None:
    assert observer.observe(3, 0.0).gateways == ()


def test_totals_become_rates_between_two_reports_of_one_run(observer: Observer) -> None:
    observer.on_demand(demand(1, shed=1000, completed=50), 1.0)
    assert only(observer).shed == 0.0
    observer.on_demand(demand(2, shed=1007, in_flight=9.5, queued=2.0), 2.0)
    assert only(observer) == GatewayDemand("g1", 2.0, 9.5, 2.0, 7.0, answered=0.0)


def test_a_report_that_was_lost_loses_nothing(observer: Observer) -> None:
    observer.on_demand(demand(1, shed=10), 1.0)
    observer.on_demand(demand(4, shed=40), 4.0)
    assert only(observer, 4.0).shed == pytest.approx(10.0)


def test_reports_that_come_in_a_bunch_are_no_burst(observer: Observer) -> None:
    observer.on_demand(demand(1, shed=10), 1.0)
    observer.on_demand(demand(2, shed=20), 3.0)
    observer.on_demand(demand(3, shed=30), 3.0001)
    assert only(observer, 3.1).shed == pytest.approx(10.0)


def test_the_time_at_pods_and_the_99th_percentile_are_of_the_last_seconds(observer: Observer) -> None:
    slow = Latency(counts=spread(ms5000=1000), total_s=4000.0, at_pods_s=4000.0)
    observer.on_demand(demand(1, latency=slow), 1.0)
    both = Latency(
        counts=tuple(map(int.__add__, slow.counts, spread(ms300=100))), total_s=4025.0, at_pods_s=4020.0
    )
    observer.on_demand(demand(2, latency=both), 2.0)
    found = only(observer)
    assert found.service_s == pytest.approx(0.2)
    assert found.p99_ms == pytest.approx(299.0)
    assert found.answered == pytest.approx(100.0)
    for second in range(3, 12):  # nothing is answered any more: what was seen before says nothing of now
        observer.on_demand(demand(second, latency=both), float(second))
    assert (only(observer, 11.0).service_s, only(observer, 11.0).p99_ms) == (None, None)


def test_all_that_a_run_did_in_its_first_second_is_news(observer: Observer) -> None:
    observer.on_demand(demand(1, started_at=1000.2, shed=30), 1.0)
    assert only(observer).shed == pytest.approx(30.0)
    assert observer.outcome(1.0).shed == 0  # the first account opens the books
    observer.on_demand(demand(2, started_at=1000.2, shed=50), 2.0)
    assert observer.outcome(2.0).shed == 20


@pytest.mark.parametrize(
    ("report", "why"),
    [
        (demand(1), "the same again"),
        (demand(0), "overtaken"),
        (demand(9, started_at=99.0), "a run that ended"),
        (demand(1, closing=True), "a good-bye that was overtaken"),
    ],
)
def test_what_is_old_is_dropped(observer: Observer, report: DemandReport, why: str) -> None:
    observer.on_demand(demand(1, in_flight=7.0), 1.0)
    assert observer.on_demand(report, 1.5) is Dropped.OLD, why
    assert only(observer).in_flight == 7.0


def test_a_report_that_was_held_up_on_its_way_says_nothing_of_now(observer: Observer) -> None:
    for second in range(1, 4):
        observer.on_demand(demand(second, in_flight=7.0), float(second))
    assert [observer.on_demand(demand(n, in_flight=1.0), 14.0) for n in range(4, 7)] == [Dropped.OLD] * 3
    assert observer.on_demand(demand(14, in_flight=2.0), 14.0) is None
    assert only(observer, 14.0).in_flight == 2.0


@pytest.mark.parametrize("step", [-300.0, 300.0])
def test_a_step_of_a_gateways_clock_costs_one_report_at_most(observer: Observer, step: float) -> None:
    for second in range(1, 4):
        observer.on_demand(demand(second), float(second))
    dropped = [
        observer.on_demand(demand(second, sent_at=1000.0 + second + step), float(second))
        for second in range(4, 10)
    ]
    assert dropped.count(Dropped.OLD) <= 1
    assert dropped[-1] is None


def test_a_gateway_that_says_good_bye_is_gone_and_what_it_had_done_counts(observer: Observer) -> None:
    observer.on_demand(demand(1, completed=10), 1.0)
    observer.outcome(1.0)
    observer.on_demand(demand(2, completed=14, closing=True, interval_s=0.0), 2.0)
    assert observer.observe(1, 2.0).gateways == ()
    assert observer.outcome(2.0).completed == 4
    assert observer.on_demand(demand(3), 2.1) is Dropped.OLD
    assert observer.on_demand(demand(1, started_at=2000.0), 3.0) is None


def test_a_silent_gateway_keeps_its_last_word_and_its_age(observer: Observer) -> None:
    observer.on_demand(demand(1, in_flight=7.0), 1.0)
    assert only(observer, 5000.0) == GatewayDemand("g1", 1.0, 7.0, 0.0)


def test_a_restart_of_which_the_clock_was_set_back_is_believed_after_a_silence(observer: Observer) -> None:
    observer.on_demand(demand(500), 1.0)
    assert observer.on_demand(demand(1, started_at=1.0), 5.0) is Dropped.OLD
    assert observer.on_demand(demand(2, started_at=1.0), 15.0) is None


def test_thousands_of_gateways_take_bounded_room_and_known_ones_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roster, "MOST_GATEWAYS", 100)
    observer = Observer("gec-en", COLD_START_S)
    observer.on_demand(demand(1), 0.0)
    dropped = [observer.on_demand(demand(1, gateway=f"h{n}"), 1.0) for n in range(5000)]
    assert len(observer.observe(1, 1.0).gateways) == 100
    assert dropped.count(Dropped.TOO_MANY) == 5000 - 99
    assert observer.on_demand(demand(2), 2.0) is None
    assert observer.on_demand(demand(1, gateway="new"), 70.0) is None  # in the place of one that is silent
    assert len(observer.observe(1, 70.0).gateways) == 100


HOSTILE: list[dict[str, Any]] = [
    {"in_flight": math.nan},
    {"in_flight": -1.0},
    {"in_flight": 1e300},
    {"queued": math.inf},
    {"queued": math.nan},
    {"interval_s": -1.0},
    {"interval_s": math.nan},
    {"interval_s": 1e9},
    {"sent_at": math.nan},
    {"started_at": math.inf},
    {"completed": -1},
    {"completed": HUGE},
    {"shed": -HUGE},
    {"failed": HUGE},
    {"sequence": HUGE},
    {"sequence": -5},
    {"gateway": "a.b"},
    {"gateway": ""},
    {"gateway": "x" * 65},
    {"latency": Latency(counts=(1, 2, 3), total_s=0.0, at_pods_s=0.0)},
    {"latency": Latency(counts=(*NOTHING[1:], -1), total_s=0.0, at_pods_s=0.0)},
    {"latency": Latency(counts=NOTHING, total_s=math.nan, at_pods_s=0.0)},
    {"latency": Latency(counts=NOTHING, total_s=0.0, at_pods_s=-1.0)},
]


@pytest.mark.parametrize("changes", HOSTILE, ids=str)
def test_a_hostile_report_changes_nothing(observer: Observer, changes: dict[str, Any]) -> None:
    observer.on_demand(demand(1), 1.0)
    before = observer.observe(1, 2.0)
    report = demand(**{"sequence": 2, **changes})
    assert observer.on_demand(report, 2.0) is Dropped.INVALID
    assert observer.observe(1, 2.0) == before


def test_a_message_about_another_model_is_dropped(observer: Observer) -> None:
    assert observer.on_demand(demand(model="other"), 1.0) is Dropped.MODEL
    assert observer.on_load(load("p", model="other"), 1.0) is Dropped.MODEL
    assert observer.pods.present is None


# Pods.


def states(seen: Observation) -> dict[str, PodState]:
    return {pod.id: pod.state for pod in seen.pods}


def test_before_discovery_is_heard_all_that_were_asked_for_are_taken_to_work(observer: Observer) -> None:
    seen = observer.observe(3, 0.0)
    assert set(states(seen).values()) == {PodState.READY}
    assert len(seen.pods) == 3
    assert seen.members_stale


def test_pods_that_were_asked_for_and_are_not_seen_are_pending_since_then(observer: Observer) -> None:
    observer.on_snapshot(snapshot(a=READY), 0.0)
    observer.observe(1, 0.0)
    observer.observe(2, 10.0)
    observer.on_snapshot(snapshot(a=READY), 18.0)
    unseen = [pod for pod in observer.observe(3, 20.0).pods if pod.id.startswith("unseen")]
    assert [(pod.state, pod.since) for pod in unseen] == [(PodState.PENDING, 10.0), (PodState.PENDING, 20.0)]


def test_a_pod_that_comes_is_the_one_that_was_asked_for_first(observer: Observer) -> None:
    observer.on_snapshot(snapshot(a=READY), 0.0)
    observer.observe(1, 0.0)
    observer.observe(2, 10.0)
    observer.observe(3, 20.0)
    observer.on_snapshot(snapshot(2, a=READY, b=WARMING), 25.0)
    found = {pod.id: pod.since for pod in observer.observe(3, 26.0).pods}
    assert found == {"a": 0.0, "b": 10.0, "unseen-1": 20.0}
    observer.on_snapshot(snapshot(3, a=READY, b=READY), 30.0)
    assert {pod.id: pod.since for pod in observer.observe(3, 31.0).pods}["b"] == 30.0


def test_how_long_pods_take_from_their_order_to_work_is_told_once(observer: Observer) -> None:
    observer.on_snapshot(snapshot(a=READY, old=WARMING), 0.0)
    observer.observe(2, 0.0)
    observer.observe(4, 10.0)
    observer.on_snapshot(snapshot(2, a=READY, old=READY, b=WARMING, c=READY), 20.0)
    observer.observe(4, 21.0)
    assert observer.pods.starts() == [10.0]  # of c; when the old one was asked for, nobody knows
    observer.on_snapshot(snapshot(3, a=READY, old=READY, b=READY, c=WARMING), 50.0)
    observer.on_snapshot(snapshot(4, a=READY, old=READY, b=READY, c=READY), 60.0)
    assert observer.pods.starts() == [40.0]
    assert observer.pods.starts() == []


def test_orders_that_are_taken_back_are_the_last_ones(observer: Observer) -> None:
    observer.on_snapshot(snapshot(a=READY), 0.0)
    for size, moment in ((1, 0.0), (2, 2.0), (3, 4.0), (2, 6.0)):
        seen = observer.observe(size, moment)
    assert [pod.since for pod in seen.pods if pod.id.startswith("unseen")] == [2.0]


def test_no_pod_is_not_zero_pods(observer: Observer) -> None:
    observer.on_snapshot(snapshot(a=READY, b=READY), 0.0)
    observer.observe(2, 0.0)
    observer.on_snapshot(snapshot(2), 10.0)
    assert list(states(observer.observe(2, 10.0)).values()) == [PodState.PENDING] * 2


def test_draining_pods_stand_for_none_that_were_asked_for(observer: Observer) -> None:
    observer.on_snapshot(snapshot(a=READY, b=DRAINING), 0.0)
    assert states(observer.observe(1, 0.0)) == {"a": PodState.READY, "b": PodState.DRAINING}
    assert observer.pods.present == 1


def test_while_discovery_is_blind_no_pod_is_stuck(observer: Observer) -> None:
    observer.on_snapshot(snapshot(a=READY, b=WARMING), 0.0)
    seen = observer.observe(3, 0.0)
    assert not seen.members_stale
    seen = observer.observe(3, 5000.0)
    assert seen.members_stale
    assert {pod.since for pod in seen.pods if pod.state is PodState.PENDING} == {5000.0 - COLD_START_S}
    observer.on_snapshot(snapshot(2, stale=True, a=READY), 5000.0)
    assert observer.observe(3, 5001.0).members_stale


def test_the_newest_publisher_is_believed_until_it_falls_silent(observer: Observer) -> None:
    observer.on_snapshot(snapshot(5, epoch=2, a=READY), 0.0)
    assert observer.on_snapshot(snapshot(9, epoch=1), 1.0) is Dropped.OLD
    assert observer.on_snapshot(snapshot(4, epoch=2), 2.0) is Dropped.OLD
    assert states(observer.observe(1, 2.0)) == {"a": PodState.READY}
    assert observer.on_snapshot(snapshot(1, epoch=1, b=READY), 20.0) is None
    assert states(observer.observe(1, 20.0)) == {"b": PodState.READY}


def test_a_load_counts_for_three_seconds(observer: Observer) -> None:
    observer.on_snapshot(snapshot(a=READY, b=READY), 0.0)
    observer.on_load(load("a"), 1.0)
    assert [pod.load for pod in observer.observe(2, 3.9).pods] == [4.0, None]
    assert [pod.load for pod in observer.observe(2, 4.1).pods] == [None, None]
    assert observer.on_load(load("a", 0), 4.2) is Dropped.OLD
    assert observer.pods.slots(3.9) == 8
    assert observer.pods.digests(3.9) == {"sha256:x"}
    assert observer.pods.slots(4.1) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"running": -1},
        {"queued": HUGE},
        {"capacity": -2},
        {"started_at": math.nan},
        {"pod": ""},
        {"pod": "x" * 999},
    ],
    ids=str,
)
def test_a_hostile_load_is_dropped(observer: Observer, changes: dict[str, Any]) -> None:
    assert observer.on_load(load(**{"pod": "a", **changes}), 1.0) is Dropped.INVALID


def test_a_snapshot_that_is_absurd_is_dropped(observer: Observer) -> None:
    assert observer.on_snapshot(snapshot(-1, a=READY), 0.0) is Dropped.INVALID
    assert observer.on_snapshot(snapshot(HUGE * 4, a=READY), 0.0) is Dropped.INVALID
    pods = tuple(Endpoint(id=f"p{number}", host="h", port=1, state=READY) for number in range(10_001))
    assert observer.on_snapshot(msgspec.structs.replace(snapshot(), endpoints=pods), 0.0) is Dropped.TOO_MANY
    assert observer.pods.present is None


# Whatever comes.

NAMES = st.sampled_from(["g1", "g2", "g.3", ""])
FLOATS = st.one_of(st.floats(), st.floats(0.0, 100.0))
INTS = st.one_of(st.integers(-2, 40), st.integers(-(2**70), 2**70))
LATENCIES = st.builds(
    Latency,
    counts=st.one_of(
        st.lists(INTS, max_size=3).map(tuple), st.lists(INTS, min_size=BUCKETS, max_size=BUCKETS).map(tuple)
    ),
    total_s=FLOATS,
    at_pods_s=FLOATS,
)
DEMANDS = st.builds(
    DemandReport,
    model=st.sampled_from(["gec-en", "other"]),
    gateway=NAMES,
    sequence=INTS,
    sent_at=FLOATS,
    started_at=FLOATS,
    interval_s=FLOATS,
    in_flight=FLOATS,
    queued=FLOATS,
    completed=INTS,
    failed=INTS,
    shed=INTS,
    latency=LATENCIES,
    closing=st.booleans(),
)
STATES = st.sampled_from(EndpointState)
SNAPSHOTS = st.builds(
    lambda epoch, generation, pods, stale: snapshot(generation, epoch, stale=stale, **pods),
    INTS,
    INTS,
    st.dictionaries(st.sampled_from("abcde"), STATES),
    st.booleans(),
)
LOADS = st.builds(
    lambda pod, sequence, running, capacity, started: load(
        pod, sequence, running=running, capacity=capacity, started_at=started
    ),
    st.sampled_from("abcde"),
    INTS,
    INTS,
    INTS,
    FLOATS,
)
Event = DemandReport | EndpointsSnapshot | LoadReport


def tell(observer: Observer, event: Event, now: float) -> None:
    if isinstance(event, DemandReport):
        observer.on_demand(event, now)
    elif isinstance(event, EndpointsSnapshot):
        observer.on_snapshot(event, now)
    else:
        observer.on_load(event, now)


@settings(max_examples=150)
@given(
    st.lists(st.tuples(st.one_of(DEMANDS, SNAPSHOTS, LOADS), st.floats(0.0, 20.0), st.integers(0, 9)), max_size=25)
)
def test_whatever_comes_an_observation_is_sound_and_no_pod_is_lost(
    story: Sequence[tuple[Event, float, int]],
) -> None:
    observer, now = Observer("gec-en", COLD_START_S), 0.0
    for event, pause, size in story:
        now += pause
        tell(observer, event, now)
        seen = observer.observe(size, now)
        for one in seen.gateways:
            figures = (one.at, one.in_flight, one.queued, one.shed, one.service_s or 0.0, one.p99_ms or 0.0)
            assert all(0.0 <= figure < math.inf for figure in figures)
        assert sum(pod.state is not PodState.DRAINING for pod in seen.pods) >= size
        assert all(pod.since <= now for pod in seen.pods)
        assert all(pod.load is None or 0.0 <= pod.load < math.inf for pod in seen.pods)
        outcome = observer.outcome(now)
        assert min(outcome.completed, outcome.failed, outcome.shed) >= 0


@settings(max_examples=100)
@given(st.permutations(list(range(1, 9))), st.lists(st.integers(1, 8), max_size=6))
def test_in_any_order_and_with_repetitions_the_last_word_counts(order: list[int], again: list[int]) -> None:
    observer = Observer("gec-en", COLD_START_S)
    for sequence in [*order, *again]:
        observer.on_demand(demand(sequence, in_flight=float(sequence), completed=10 * sequence), 8.0)
    assert only(observer, 8.0).in_flight == 8.0


@given(st.lists(st.integers(0, 1000), min_size=BUCKETS, max_size=BUCKETS), st.floats(0.01, 1.0))
def test_a_percentile_lies_in_the_bucket_in_which_the_rank_falls(counts: list[int], part: float) -> None:
    found = percentile_ms(counts, part)
    if not sum(counts):
        assert found is None
        return
    assert found is not None
    bucket = next(place for place, upto in enumerate(accumulate(counts)) if upto and upto >= part * sum(counts))
    lower, upper = (0, *LATENCY_BOUNDS_MS)[bucket], (*LATENCY_BOUNDS_MS, LATENCY_BOUNDS_MS[-1])[bucket]
    assert lower <= found <= upper


def test_totals_that_go_backwards_are_no_difference() -> None:
    assert difference(spread(ms5=3), spread(ms5=1)) == spread(ms5=2)
    assert difference(spread(ms5=1), spread(ms5=3)) is None


def test_what_a_pod_can_run_is_believed_of_those_that_discovery_names() -> None:
    observer = Observer("gec-en", COLD_START_S)
    for number in range(5):
        observer.on_load(load(f"stray-{number}", capacity=1), 0.0)
    assert observer.pods.slots(0.0) == 1
    observer.on_load(load("a", capacity=8), 0.0)
    assert observer.pods.slots(0.0) == 1
    observer.on_snapshot(snapshot(a=EndpointState.READY), 0.0)
    assert observer.pods.slots(0.0) == 8
    observer.on_load(load("a", 2, capacity=0), 1.0)
    assert observer.pods.slots(1.0) == 1


def test_a_place_is_found_again_once_strangers_have_fallen_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_roster, "MOST_PODS", 3)
    monkeypatch.setattr(roster, "MOST_GATEWAYS", 3)
    observer = Observer("gec-en", COLD_START_S)
    for number in range(3):
        observer.on_load(load(f"stray-{number}"), 0.0)
        observer.on_demand(demand(gateway=f"stray-{number}"), 0.0)
    for now in (1.0, 1.5, 2.5):
        assert observer.on_load(load("a"), now) is Dropped.TOO_MANY
    assert observer.on_load(load("a"), 3.6) is None
    for now in (1.0, 59.5, 59.9, 60.0):
        assert observer.on_demand(demand(gateway="g"), now) is Dropped.TOO_MANY
    assert observer.on_demand(demand(gateway="g"), 61.1) is None


def test_two_gateways_of_one_name_are_told_from_a_restart_and_from_a_replay() -> None:
    observer = Observer("gec-en", COLD_START_S)
    found = []
    for second in range(1, 31):
        now = 1000.0 + second
        observer.on_demand(demand(second, sent_at=now, started_at=200.0), now)
        found.append(observer.on_demand(demand(second, sent_at=now, started_at=100.0), now + 0.1))
    assert found[:10] == [Dropped.OLD] * 10
    assert found[10:] == [Dropped.TWICE] * 20
    assert observer.on_demand(demand(99, sent_at=1001.0, started_at=100.0), 1030.2) is Dropped.OLD
