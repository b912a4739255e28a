"""`decide`: how many pods, from what is known. Time is an argument; a fleet here is a list of pods."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from copydesk.autoscaler import (
    Capacity,
    Decision,
    GatewayDemand,
    Limits,
    LimitsError,
    Observation,
    Pod,
    PodState,
    Policy,
    Rule,
    Rules,
    State,
    decide,
)
from copydesk.autoscaler.reason import explain
from copydesk.autoscaler.refinement import Refinement

# A pod that answers 100 requests a second with 20 at a time; the share of that is linear in the concurrency.
POD = Capacity(20.0, 100.0, 1000.0, (0.0, 20.0), (0.0, 1.0))
POLICY = Policy(POD, Limits(1, 100))
RULES = POLICY.rules
EVERY = 2.0


def ready(count: int, since: float = -1000.0) -> tuple[Pod, ...]:
    return tuple(Pod(f"pod-{number}", PodState.READY, since) for number in range(count))


def gateway(
    in_flight: float, at: float, *, queued: float = 0.0, shed: float = 0.0, name: str = "a"
) -> GatewayDemand:
    return GatewayDemand(name, at, in_flight, queued, shed, 0.2, 300.0)


def follow(
    demand: Callable[[float], float],
    seconds: float,
    *,
    pods: int = 10,
    policy: Policy = POLICY,
    start: float = 0.0,
) -> tuple[list[Decision], State]:
    """Let pods start at once, and demand (in requests that take 0.2 s) go its way; the rest is refused."""
    state, found = State(), []
    now = start
    while now <= start + seconds:
        running = min(demand(now), POD.concurrency * pods)
        report = gateway(running, now, shed=(demand(now) - running) / 0.2)
        observation = Observation(pods, (report,), ready(pods))
        decision, state = decide(policy, state, observation, now)
        found.append(decision)
        pods = decision.replicas
        now += EVERY
    return found, state


def sizes(found: Sequence[Decision]) -> list[int]:
    return [decision.replicas for decision in found]


def test_a_steady_load_is_given_what_it_needs_and_some_headroom() -> None:
    found, _ = follow(lambda now: 160.0, 2000.0, pods=30)
    last = found[-1]
    assert last.inputs.demand == pytest.approx(8.0)
    assert last.replicas == math.ceil(8.0 / last.inputs.share)
    assert last.inputs.share == pytest.approx(1.0 / (1.0 + RULES.unseen_ramp * RULES.cold_start_s))


def test_a_long_cold_start_is_given_headroom_for_a_fifth_of_growth_and_no_more() -> None:
    assert Rules(cold_start_s=20.0).unseen_ramp == Rules().ramp_prior
    slow = Rules(cold_start_s=400.0)
    found, _ = follow(lambda now: 160.0, 100.0, policy=Policy(POD, Limits(1, 100), slow))
    assert found[-1].inputs.share == pytest.approx(1.0 / 1.2)


def test_growth_is_immediate_and_shrinking_waits_for_five_minutes() -> None:
    found, _ = follow(lambda now: 300.0 if 400.0 <= now < 420.0 else 100.0, 1000.0)
    by_time = {index * EVERY: decision.replicas for index, decision in enumerate(found)}
    assert by_time[410.0] >= 15
    assert by_time[690.0] >= math.ceil(15.0 / found[-1].inputs.share)
    assert by_time[1000.0] < by_time[690.0]


def test_it_shrinks_by_no_more_than_a_tenth_a_minute() -> None:
    found, _ = follow(lambda now: 1200.0 if now < 100.0 else 20.0, 1500.0, pods=80)
    history = sizes(found)
    for earlier, later in zip(history, history[29:], strict=False):
        assert later >= earlier - max(1, earlier // 10) - 1
    assert history[-1] < 30


def test_a_ramp_is_met_ahead_by_the_cold_start() -> None:
    found, _ = follow(lambda now: 200.0 + max(0.0, now - 100.0), 300.0, pods=12)
    last = found[-1]
    assert last.inputs.slope == pytest.approx(0.05, rel=0.05)
    ahead = last.inputs.demand_20 + last.inputs.slope * POLICY.rules.lead_s
    assert last.replicas >= math.floor(ahead / last.inputs.share)
    assert Rule.UP in {decision.rule for decision in found[-10:]}


def test_a_step_is_not_taken_for_a_ramp() -> None:
    found, _ = follow(lambda now: 200.0 if now < 100.0 else 260.0, 140.0, pods=14)
    assert max(sizes(found)) <= math.ceil(13.0 / found[-1].inputs.share) + 1


def test_growth_is_limited_unless_it_is_panic() -> None:
    state, pods = State(), ready(10)
    for now in (0.0, 2.0, 4.0):
        calm, state = decide(POLICY, state, Observation(10, (gateway(150.0, now),), pods), now)
    assert calm.replicas == 10
    for now in (6.0, 8.0, 10.0):
        wild, state = decide(POLICY, state, Observation(10, (gateway(200.0, now, shed=4000.0),), pods), now)
    assert wild.rule is Rule.PANIC
    assert 50 <= wild.replicas <= 100


def starting(count: int, since: float) -> tuple[Pod, ...]:
    return tuple(Pod(f"new-{number}", PodState.PENDING, since) for number in range(count))


def panicked(size: int, ready_pods: int, demand: float) -> Decision:
    """Panic at 10 to 14 s with ten pods; at 50 s so many of `size` work, with that demand."""
    _, state = follow(lambda now: 150.0, 68.0, start=-60.0)
    for now in (10.0, 12.0, 14.0):
        _, state = decide(POLICY, state, Observation(10, (gateway(200.0, now, shed=1000.0),), ready(10)), now)
    for now in range(16, 50, 2):
        seen = Observation(size, (gateway(demand, now),), ready(ready_pods) + starting(size - ready_pods, 14.0))
        decision, state = decide(POLICY, state, seen, float(now))
    return decision


def test_what_panic_ordered_beyond_need_is_withdrawn_once_enough_pods_work() -> None:
    enough = panicked(60, 40, 300.0)
    needed = enough.inputs.peak
    assert enough.rule is Rule.WITHDRAW
    assert enough.replicas == 60 - (40 - needed)  # so many remain even if those that work go first
    assert "40 pods work" in enough.reason
    assert panicked(60, 55, 300.0).replicas == 55
    assert panicked(60, needed, 300.0).replicas == 60
    assert panicked(40, 40, 300.0).replicas == 40


def test_what_is_refused_is_demand() -> None:
    quiet, _ = decide(POLICY, State(), Observation(10, (gateway(200.0, 0.0),), ready(10)), 0.0)
    shedding, _ = decide(POLICY, State(), Observation(10, (gateway(200.0, 0.0, shed=500.0),), ready(10)), 0.0)
    assert shedding.inputs.demand == pytest.approx(quiet.inputs.demand + 5.0)


def test_pending_pods_count_by_how_far_they_should_have_come() -> None:
    half = tuple(Pod(f"new-{number}", PodState.PENDING, 0.0) for number in range(10))
    decision, _ = decide(POLICY, State(), Observation(20, (gateway(100.0, 30.0),), ready(10) + half), 30.0)
    assert decision.inputs.effective == pytest.approx(15.0)


def test_pods_on_their_way_are_not_ordered_twice() -> None:
    coming = tuple(Pod(f"new-{number}", PodState.PENDING, 0.0) for number in range(30))
    state = State()
    for now in (10.0, 12.0, 14.0):
        observation = Observation(40, (gateway(200.0, now, queued=100.0),), ready(10) + coming)
        decision, state = decide(POLICY, state, observation, now)
    assert decision.replicas == 40


def test_a_stuck_pod_is_named_and_replaced() -> None:
    pods = (*ready(10), Pod("wedged", PodState.PENDING, 0.0))
    state = State()
    for now in (181.0, 183.0):
        decision, state = decide(POLICY, state, Observation(11, (gateway(180.0, now),), pods), now)
    assert decision.stuck == ("wedged",)
    assert decision.replicas == 12
    assert "not waited for" in decision.reason


def test_pods_that_are_all_stuck_do_not_fill_the_cluster() -> None:
    pods = tuple(Pod(f"pod-{number}", PodState.PENDING, 0.0) for number in range(100))
    state = State()
    for now in (1000.0, 1002.0):
        decision, state = decide(POLICY, state, Observation(20, (gateway(20.0, now),), pods), now)
    assert decision.replicas <= 20


def test_a_silent_gateway_keeps_its_demand_and_forbids_shrinking() -> None:
    _, state = follow(lambda now: 160.0, 600.0, pods=20)
    now = 700.0
    both = (gateway(20.0, now), gateway(140.0, now - 10.0, name="b"))
    decision, _ = decide(POLICY, state, Observation(20, both, ready(20)), now)
    assert decision.inputs.demand == pytest.approx(8.0)
    assert decision.rule is Rule.HOLD_STALE
    assert "b" in decision.reason


def test_a_gateway_that_is_gone_for_long_counts_only_where_its_requests_arrive() -> None:
    pods = tuple(replace(pod, load=16.0) for pod in ready(10))
    both = (gateway(20.0, 100.0), gateway(5000.0, 0.0, name="b"))
    heard, _ = decide(POLICY, State(), Observation(10, both, pods), 100.0)
    assert heard.inputs.concurrency == pytest.approx(160.0)
    assert heard.inputs.stale_gateways == ()
    deaf, _ = decide(POLICY, State(), Observation(10, both, ready(10)), 100.0)
    assert deaf.inputs.concurrency == pytest.approx(5020.0)


def test_a_gateway_that_crashed_is_forgotten_after_a_quarter_of_an_hour_if_others_are_heard() -> None:
    crashed = gateway(100.0, 0.0, name="b")
    for now, stale in ((899.0, ("b",)), (901.0, ())):
        found, _ = decide(POLICY, State(), Observation(10, (gateway(20.0, now), crashed), ready(10)), now)
        assert found.inputs.stale_gateways == stale
    alone, _ = decide(POLICY, State(), Observation(10, (crashed,), ready(10)), 10_000.0)
    assert alone.inputs.stale_gateways == ("b",)
    assert alone.replicas == 10


def test_a_gateway_that_crashes_again_and_again_does_not_multiply_what_pods_say_that_they_have() -> None:
    pods = tuple(replace(pod, load=16.0) for pod in ready(10))
    ghosts = tuple(gateway(80.0, 100.0 - 5.0 * age, name=f"b-{age}") for age in range(1, 12))
    found, _ = decide(POLICY, State(), Observation(10, (gateway(80.0, 100.0), *ghosts), pods), 100.0)
    assert found.inputs.concurrency == pytest.approx(160.0)
    assert len(found.inputs.stale_gateways) == 11
    waiting = (gateway(80.0, 100.0), gateway(80.0, 90.0, queued=120.0, name="b"))
    queued, _ = decide(POLICY, State(), Observation(10, waiting, pods), 100.0)
    assert queued.inputs.concurrency == pytest.approx(200.0)


@pytest.mark.parametrize("gateways", [(), (gateway(0.0, 0.0),)])
def test_silence_is_not_zero(gateways: tuple[GatewayDemand, ...]) -> None:
    _, state = follow(lambda now: 160.0, 600.0, pods=20)
    for step in range(600):
        now = 602.0 + step * EVERY
        decision, state = decide(POLICY, state, Observation(10, gateways, ready(10)), now)
        assert decision.replicas == 10
    assert decision.rule is Rule.HOLD_SILENT


def test_a_zero_that_is_reported_is_zero() -> None:
    found, _ = follow(lambda now: 0.0, 3000.0, pods=10)
    assert found[-1].replicas == 1


def test_an_unsure_membership_forbids_shrinking() -> None:
    state = State()
    for step in range(400):
        observation = Observation(20, (gateway(20.0, step * EVERY),), ready(20), members_stale=True)
        decision, state = decide(POLICY, state, observation, step * EVERY)
        assert decision.replicas == 20


def test_a_new_leader_in_a_ramp_does_not_shrink() -> None:
    _, old = follow(lambda now: 200.0 + now, 300.0, pods=12)
    size = old.sizes[-1][1]
    found, _ = follow(lambda now: 200.0 + now, 120.0, pods=size, start=302.0)
    assert min(sizes(found)) >= size
    falling, _ = follow(lambda now: 10.0, 58.0, pods=size, start=302.0)
    assert set(sizes(falling)) == {size}
    assert falling[-1].rule is Rule.HOLD_NEW


def test_limits_clamp_last_even_when_nothing_is_known() -> None:
    policy = Policy(POD, Limits(5, 8))
    for size, expected in ((2, 5), (6, 6), (20, 8)):
        decision, _ = decide(policy, State(), Observation(size, (), ()), 0.0)
        assert decision.replicas == expected


def test_more_limits_than_demand_is_said() -> None:
    found, _ = follow(lambda now: 1000.0, 30.0, policy=Policy(POD, Limits(1, 12)))
    assert found[-1].replicas == 12
    assert found[-1].rule is Rule.LIMIT
    assert "1 to 12" in found[-1].reason


@pytest.mark.parametrize("limits", [(0, 5), (5, 4), (-1, 3)])
def test_impossible_limits_are_refused(limits: tuple[int, int]) -> None:
    with pytest.raises(LimitsError) as caught:
        Limits(*limits)
    assert caught.value.exit_code == 2
    assert caught.value.key in ("min_pods", "max_pods")


@pytest.mark.parametrize("change", [{"cold_start_s": 0.0}, {"cold_start_s": math.nan}, {"most_share": 1.2}])
def test_impossible_rules_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(LimitsError) as caught:
        Rules(**change)
    assert caught.value.key in change


def test_a_single_slip_of_a_sensor_is_no_panic() -> None:
    _, state = follow(lambda now: 160.0, 600.0)
    size = state.sizes[-1][1]
    decision, _ = decide(POLICY, state, Observation(size, (gateway(460.0, 602.0),), ready(size)), 602.0)
    assert decision.rule is not Rule.PANIC


def test_every_decision_says_why_in_words() -> None:
    found, _ = follow(lambda now: 100.0 + 200.0 * (now > 300.0) - 250.0 * (now > 700.0), 1500.0)
    for decision in found:
        what, _, why = decision.reason.partition(": ")
        assert what.startswith(("stay at", "add", "remove"))
        assert why
    assert {Rule.DOWN, Rule.HOLD_RECENT, Rule.HOLD_PACE} <= {decision.rule for decision in found}


@pytest.mark.parametrize("rule", [rule for rule in Rule if rule is not Rule.LIMIT])
def test_each_rule_can_be_said_in_words(rule: Rule) -> None:
    found, _ = follow(lambda now: 100.0, 10.0)
    plain = explain(rule, rule, found[-1].inputs, 12, POLICY)
    assert plain.startswith(("add", "remove"))
    assert explain(Rule.LIMIT, rule, found[-1].inputs, 12, POLICY) == f"{plain}, and the limits are 1 to 100"


any_float = st.floats(allow_nan=True, allow_infinity=True)
reports = st.builds(GatewayDemand, st.sampled_from("abc"), *[any_float] * 4, *[st.none() | any_float] * 3)
pods = st.builds(Pod, st.text(max_size=3), st.sampled_from(PodState), any_float, st.none() | any_float)
observations = st.builds(
    Observation,
    st.integers(-5, 1000),
    st.lists(reports, max_size=3).map(tuple),
    st.lists(pods, max_size=6).map(tuple),
    st.booleans(),
)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(observations, any_float), min_size=1, max_size=6),
    st.integers(1, 50),
    st.integers(0, 50),
    st.booleans(),
    st.floats(0.05, 1.0),
)
def test_whatever_is_observed_the_size_is_within_the_limits(
    steps: list[tuple[Observation, float]], least: int, more: int, measured: bool, learned: float
) -> None:
    policy = Policy(replace(POD, measured=measured), Limits(least, least + more))
    state = State(refinement=Refinement(learned))
    for observation, now in steps:
        decision, state = decide(policy, state, observation, now)
        assert least <= decision.replicas <= least + more
        assert decision.reason


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(0.0, 2000.0), min_size=5, max_size=30),
    st.floats(1.0, 1.5),
    st.floats(0.0, 300.0),
)
def test_more_demand_never_means_fewer_pods(loads: list[float], factor: float, shed: float) -> None:
    state = State()
    for step, load in enumerate(loads):
        now = 100.0 + step * EVERY
        one = Observation(40, (gateway(load, now, shed=shed),), ready(40))
        other = Observation(40, (gateway(factor * load, now, shed=factor * shed),), ready(40))
        large, _ = decide(POLICY, state, other, now)
        small, state = decide(POLICY, state, one, now)
        assert large.replicas >= small.replicas


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(1.0, 190.0), min_size=5, max_size=90), st.floats(1.0, 2.0))
def test_a_fleet_with_more_demand_all_the_time_never_has_fewer_pods(loads: list[float], factor: float) -> None:
    """As long as the pods can take it: of what they cannot, neither shows more than that they are full."""
    small, large = State(), State()
    for step, load in enumerate(loads):
        now = 100.0 + step * EVERY
        less, small = decide(POLICY, small, Observation(20, (gateway(load, now),), ready(20)), now)
        more, large = decide(POLICY, large, Observation(20, (gateway(factor * load, now),), ready(20)), now)
        assert more.replicas >= less.replicas


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(["fresh", "late", "gone", "broken"]), min_size=30, max_size=60),
    st.floats(0.0, 150.0),
)
def test_missing_data_never_shrinks(events: list[str], load: float) -> None:
    _, state = follow(lambda now: 150.0, 400.0, pods=40)
    size = 40
    for step, event in enumerate(events):
        now = 402.0 + step * EVERY
        heard = {
            "fresh": (gateway(load, now), gateway(0.0, now - 5.0, name="b")),
            "late": (gateway(load, now - 4.0),),
            "gone": (),
            "broken": (gateway(math.nan, now),),
        }[event]
        decision, state = decide(POLICY, state, Observation(size, heard, ready(size)), now)
        assert decision.replicas >= size
        size = decision.replicas


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 1000), st.floats(0.005, 0.05))
def test_constant_noise_does_not_make_it_flap(seed: int, noise: float) -> None:
    rng = random.Random(seed)
    found, _ = follow(lambda now: 600.0 * (1.0 + rng.gauss(0.0, noise)), 3600.0, pods=36)
    settled = sizes(found)[600:]
    moves = [b - a for a, b in pairwise(settled) if a != b]
    reversals = sum(1 for a, b in pairwise(moves) if a * b < 0)
    # After each peak it takes five minutes to turn round, and there are eight of these.
    assert reversals <= 2 * 2400 / RULES.memory_s * min(1.0, noise / 0.04)
    # Noise is as large as five in a hundred, and three of its deviations to either side are a third of the size.
    assert max(settled) - min(settled) <= 16


def test_a_hundredth_of_noise_moves_nothing() -> None:
    rng = random.Random(1)
    found, _ = follow(lambda now: 600.0 * (1.0 + rng.gauss(0.0, 0.01)), 3600.0, pods=36)
    assert len(set(sizes(found)[600:])) == 1


def test_a_shrink_that_is_not_worth_the_move_is_left_out() -> None:
    def demand(now: float) -> float:
        return 900.0 if now < 600.0 else 880.0 if now % 200.0 < 30.0 else 840.0

    found, _ = follow(demand, 1500.0, pods=54)
    assert set(sizes(found)) == {54}
    assert found[-1].inputs.peak == 53
    assert found[-1].rule is Rule.HOLD_SLACK


@settings(max_examples=50, deadline=None)
@given(observations, st.floats(0.0, 1e6))
def test_it_is_pure(observation: Observation, now: float) -> None:
    _, state = follow(lambda at: 150.0, 20.0, start=-40.0)
    first, second = (decide(POLICY, state, observation, now) for _ in range(2))
    assert repr(first) == repr(second)


def test_pods_that_stay_stuck_make_the_size_no_restless_one() -> None:
    state, size, moves, chance = State(), 43, [], random.Random(1)
    for step in range(600):
        now = EVERY * step
        pods = ready(25) + tuple(Pod(f"dead-{number}", PodState.PENDING, -1000.0) for number in range(size - 25))
        seen = Observation(size, (gateway(500.0, now, shed=chance.gauss(500.0, 30.0)),), pods)
        decision, state = decide(POLICY, state, seen, now)
        if decision.change:
            moves.append(decision.change)
        size = decision.replicas
    assert size > 43
    assert sum(before * after < 0 for before, after in pairwise(moves)) <= 2


def test_a_fleet_of_one_does_not_panic_over_noise() -> None:
    state, size, rules, chance = State(), 1, set[Rule](), random.Random(1)
    for step in range(1800):
        now = EVERY * step
        seen = Observation(size, (gateway(min(20.0 * size, max(0.0, chance.gauss(15.0, 2.5))), now),), ready(size))
        decision, state = decide(POLICY, state, seen, now)
        size = decision.replicas
        rules.add(decision.rule)
    assert size <= 2
    assert Rule.PANIC not in rules
    alarmed = Observation(1, (gateway(20.0, 3600.0, shed=30.0),), ready(1))
    assert decide(POLICY, state, alarmed, 3600.0)[0].rule is Rule.PANIC
