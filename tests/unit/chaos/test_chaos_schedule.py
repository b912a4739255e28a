"""The plan of faults: the same for a seed, one fault of a pod at a time, none too early or too late."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from copydesk.chaos.kinds import SHAPES, Kind, Track, owner
from copydesk.chaos.schedule import Pace, Strike, plan_strikes

PODS = st.lists(st.sampled_from([f"pod-{n}" for n in range(1, 9)]), min_size=2, unique=True)
KINDS = st.lists(st.sampled_from(list(Kind)), min_size=1, unique=True)
PACES = st.builds(
    Pace,
    lead=st.floats(0, 60),
    tail=st.floats(0, 60),
    least_rest=st.floats(1, 30),
    most_rest=st.floats(30, 60),
)


@given(seed=st.integers(), seconds=st.floats(1, 7200), pods=PODS, kinds=KINDS, pace=PACES)
def test_faults_of_a_track_never_overlap_and_leave_the_rest_between_them(
    seed: int, seconds: float, pods: list[str], kinds: list[Kind], pace: Pace
) -> None:
    strikes = plan_strikes(seed, seconds, pods, kinds, pace)
    assert plan_strikes(seed, seconds, pods, kinds, pace) == strikes
    assert list(strikes) == sorted(strikes, key=lambda one: one.at)
    for track in Track:
        mine = [one for one in strikes if SHAPES[one.kind].track is track]
        assert all(after.at - before.ends >= pace.least_rest - 0.002 for before, after in pairwise(mine))
    for one in strikes:
        shape = SHAPES[one.kind]
        assert one.kind in kinds
        assert shape.shortest - 0.001 <= one.seconds <= shape.longest + 0.001
        assert pace.lead - 0.001 <= one.at
        assert one.ends <= seconds - pace.tail + 0.002
        assert one.target in (pods if shape.track is Track.PODS else [owner(one.kind)])


@given(seed=st.integers(), kinds=KINDS)
def test_every_kind_comes_before_one_comes_again(seed: int, kinds: list[Kind]) -> None:
    strikes = plan_strikes(seed, 3600.0, ["pod-1", "pod-2"], kinds)
    for track in Track:
        mine = [one.kind for one in strikes if SHAPES[one.kind].track is track]
        there = {kind for kind in kinds if SHAPES[kind].track is track}
        for first in range(0, len(mine) - len(there) + 1, max(1, len(there))):
            assert set(mine[first : first + len(there)]) == there


def test_seeds_differ() -> None:
    plans = {plan_strikes(seed, 600.0, ["pod-1", "pod-2"], list(Kind)) for seed in range(20)}
    assert len(plans) == 20


def test_a_fleet_of_one_pod_is_spared_what_strikes_pods() -> None:
    strikes = plan_strikes(1, 3600.0, ["pod-1"], list(Kind))
    assert strikes
    assert all(SHAPES[one.kind].track is Track.CONTROL for one in strikes)


def test_a_minute_has_room_for_a_fault_and_a_moment_has_none() -> None:
    assert plan_strikes(1, 60.0, ["pod-1", "pod-2"], [Kind.POD_KILL])
    assert plan_strikes(1, 30.0, ["pod-1", "pod-2"], list(Kind)) == ()


def test_a_strike_ends_when_it_has_lasted() -> None:
    assert Strike(at=3.0, kind=Kind.NATS_AWAY, target="nats", seconds=4.5).ends == 7.5
