"""Power of two choices: who may be chosen, and who is preferred."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from copydesk.routing import Standing, better, choose, occupancy

standings = st.builds(
    Standing,
    outstanding=st.integers(0, 1000),
    capacity=st.integers(1, 300),
    latency_ms=st.none() | st.floats(0, 60_000),
)


@dataclass(frozen=True)
class Pod:
    id: str
    at: Standing

    def standing(self, now: float) -> Standing:
        return self.at


def fleet(count: int, outstanding: int = 0) -> list[Pod]:
    return [Pod(f"p{i}", Standing(outstanding, 10, 100.0)) for i in range(count)]


@given(
    st.lists(standings, max_size=8),
    st.sets(st.integers(0, 7).map(lambda i: f"p{i}")),
    st.randoms(use_true_random=False),
)
def test_only_an_eligible_pod_that_is_not_excluded_is_chosen(
    states: list[Standing], excluded: set[str], rng: random.Random
) -> None:
    pods = [Pod(f"p{i}", state) for i, state in enumerate(states)]
    allowed = {pod.id for pod in pods} - excluded
    chosen = choose(pods, now=0.0, random=rng.random, excluded=excluded)
    if allowed:
        assert chosen is not None
        assert chosen.id in allowed
    else:
        assert chosen is None


@given(standings, st.floats(0, 1, exclude_max=True))
def test_a_single_candidate_is_chosen_however_bad_it_looks(state: Standing, draw: float) -> None:
    only = Pod("only", state)
    assert choose([only], now=0.0, random=lambda: draw) is only


@given(st.integers(2, 20), st.floats(0, 1, exclude_max=True), st.floats(0, 1, exclude_max=True))
def test_the_two_that_are_compared_are_distinct(count: int, first: float, second: float) -> None:
    asked: list[str] = []

    @dataclass(frozen=True)
    class Watched(Pod):
        def standing(self, now: float) -> Standing:
            asked.append(self.id)
            return self.at

    draws = iter((first, second))
    choose([Watched(pod.id, pod.at) for pod in fleet(count)], now=0.0, random=lambda: next(draws))
    assert len(set(asked)) == 2


def test_equal_pods_share_the_traffic_evenly() -> None:
    rng = random.Random(7)
    pods = fleet(5)
    counts: Counter[str] = Counter()
    for _ in range(20_000):
        chosen = choose(pods, now=0.0, random=rng.random)
        assert chosen is not None
        counts[chosen.id] += 1
    assert all(abs(count - 4_000) < 300 for count in counts.values())


def test_of_two_pods_the_busier_gets_nothing() -> None:
    rng = random.Random(7)
    busy, idle = Pod("busy", Standing(5, 10, 100.0)), Pod("idle", Standing(2, 10, 100.0))
    assert {choose([busy, idle], now=0.0, random=rng.random) for _ in range(100)} == {idle}


@given(standings, st.integers(1, 100))
def test_more_outstanding_work_never_makes_a_pod_look_better(state: Standing, extra: int) -> None:
    busier = Standing(state.outstanding + extra, state.capacity, state.latency_ms)
    assert better(state, busier)
    assert occupancy(busier) > occupancy(state)


def test_a_pod_without_latency_is_compared_by_load_alone() -> None:
    new = Standing(1, 10, None)
    assert better(new, Standing(2, 10, 1.0))
    assert not better(new, Standing(0, 10, 50_000.0))


def test_a_slow_pod_loses_against_a_fast_one_with_the_same_load() -> None:
    assert better(Standing(3, 10, 50.0), Standing(3, 10, 100.0))
    assert not better(Standing(3, 10, 100.0), Standing(3, 10, 50.0))


def test_capacity_is_what_load_is_measured_against() -> None:
    assert better(Standing(20, 100, 50.0), Standing(5, 10, 50.0))
