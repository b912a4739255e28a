"""Power of two choices: who may be chosen, and who is preferred."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from copydesk.routing import Standing, better, choose, choose_near

standings: st.SearchStrategy[Standing] = st.tuples(st.floats(0.001, 1000), st.none() | st.floats(0, 60_000))


@dataclass(frozen=True)
class Pod:
    id: str
    at: Standing
    asked: list[str] = field(default_factory=list, compare=False)

    def standing(self, now: float) -> Standing:
        self.asked.append(self.id)
        return self.at


def fleet(count: int, occupancy: float = 0.1, name: str = "p") -> list[Pod]:
    return [Pod(f"{name}{i}", (occupancy, 100.0)) for i in range(count)]


@given(
    st.lists(standings, max_size=8),
    st.lists(standings, max_size=4),
    st.sets(st.integers(0, 11).map(lambda i: f"p{i}")),
    st.randoms(use_true_random=False),
)
def test_only_an_eligible_pod_that_is_not_excluded_is_chosen(
    near: list[Standing], far: list[Standing], excluded: set[str], rng: random.Random
) -> None:
    here = [Pod(f"p{i}", state) for i, state in enumerate(near)]
    there = [Pod(f"p{8 + i}", state) for i, state in enumerate(far)]
    for pods, chosen in (
        (here, choose(here, now=0.0, random=rng.random, excluded=excluded)),
        (
            here + there,
            choose_near(here, there, spillover=1.5, now=0.0, random=rng.random, excluded=excluded),
        ),
    ):
        allowed = {pod.id for pod in pods} - excluded
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
    draws = iter((first, second))
    choose([Pod(pod.id, pod.at, asked) for pod in fleet(count)], now=0.0, random=lambda: next(draws))
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
    busy, idle = Pod("busy", (0.6, 100.0)), Pod("idle", (0.3, 100.0))
    assert {choose([busy, idle], now=0.0, random=rng.random) for _ in range(100)} == {idle}


@given(standings, st.floats(0.001, 100))
def test_more_outstanding_work_never_makes_a_pod_look_better(state: Standing, extra: float) -> None:
    assert better(state, (state[0] + extra, state[1]))


def test_a_pod_without_latency_is_compared_by_load_alone() -> None:
    assert better((0.2, None), (0.3, 1.0))
    assert not better((0.2, None), (0.1, 50_000.0))


def test_a_slow_pod_loses_against_a_fast_one_with_the_same_load() -> None:
    assert better((0.3, 50.0), (0.3, 100.0))
    assert not better((0.3, 100.0), (0.3, 50.0))


def chosen_zones(near: float, far: float, spillover: float) -> Counter[str]:
    rng = random.Random(3)
    counts: Counter[str] = Counter()
    for _ in range(200):
        chosen = choose_near(
            fleet(4, near, "near"), fleet(8, far, "far"), spillover=spillover, now=0.0, random=rng.random
        )
        assert chosen is not None
        counts[chosen.id.rstrip("0123456789")] += 1
    return counts


def test_the_own_zone_gets_everything_until_it_is_busier_by_the_ratio_and_then_nothing_more() -> None:
    assert chosen_zones(near=0.14, far=0.1, spillover=1.5) == {"near": 200}
    assert chosen_zones(near=0.16, far=0.1, spillover=1.5) == {"far": 200}


def test_without_a_usable_pod_nearby_the_others_are_used() -> None:
    far = fleet(3, name="far")
    assert choose_near([], far, spillover=9.0, now=0.0, random=random.Random(1).random) in far
