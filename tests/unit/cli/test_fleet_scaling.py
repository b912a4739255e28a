"""Which pods come and which go: limits, names, order, and what must never happen whatever is decided."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.cli.fleet.scaling import Limits, LimitsError, Moves, PodView, plan_moves

LIMITS = Limits(1, 4)


def pod(number: int, *, ready: bool = True, running: bool = True, draining: bool = False) -> PodView:
    return PodView(f"pod-{number}", started=float(number), running=running, ready=ready, draining=draining)


@st.composite
def fleets(draw: st.DrawFn) -> tuple[list[PodView], int, Limits]:
    least = draw(st.integers(1, 8))
    limits = Limits(least, draw(st.integers(least, 12)))
    numbers = draw(st.lists(st.integers(1, 20), unique=True, max_size=limits.most))
    pods = [
        PodView(
            f"pod-{number}",
            started=draw(st.floats(0, 1e9)),
            running=draw(st.booleans()),
            ready=draw(st.booleans()),
            draining=draw(st.booleans()),
        )
        for number in numbers
    ]
    return pods, draw(st.integers(-5, 1000)), limits


def after(pods: list[PodView], moves: Moves) -> list[PodView]:
    drained = [replace(pod, draining=pod.draining or pod.name == moves.drain) for pod in pods]
    return [*drained, *(PodView(name, started=1e9) for name in moves.start)]


@given(fleets())
def test_no_order_makes_the_fleet_larger_than_the_limit_nor_smaller(
    fleet: tuple[list[PodView], int, Limits],
) -> None:
    pods, size, limits = fleet
    moves = plan_moves(pods, size, limits)
    assert len(after(pods, moves)) <= limits.most
    staying = sum(not pod.draining for pod in pods)
    assert sum(not pod.draining for pod in after(pods, moves)) >= min(staying, limits.least)


@given(fleets())
def test_a_pod_that_takes_requests_always_stays(fleet: tuple[list[PodView], int, Limits]) -> None:
    pods, size, limits = fleet
    moves = plan_moves(pods, size, limits)
    if moves.drain is not None:
        assert any(pod.ready and not pod.draining for pod in after(pods, moves))


@given(fleets())
def test_nobody_who_serves_goes_while_there_is_somebody_who_does_not(
    fleet: tuple[list[PodView], int, Limits],
) -> None:
    pods, size, limits = fleet
    moves = plan_moves(pods, size, limits)
    gone = next((pod for pod in pods if pod.name == moves.drain), None)
    if gone is not None:
        assert not gone.draining
        assert gone.ready <= all(pod.ready for pod in pods if not pod.draining)


@given(fleets())
def test_a_new_pod_has_a_name_that_nobody_has(fleet: tuple[list[PodView], int, Limits]) -> None:
    pods, size, limits = fleet
    names = [pod.name for pod in after(pods, plan_moves(pods, size, limits))]
    assert len(names) == len(set(names))


@given(fleets())
def test_step_by_step_every_order_is_reached_and_then_nothing_moves(
    fleet: tuple[list[PodView], int, Limits],
) -> None:
    pods, size, limits = fleet
    for _ in range(40):
        moves = plan_moves(pods, size, limits)
        # What drains ends, and what starts comes up.
        pods = [replace(pod, ready=True, running=True) for pod in after(pods, moves) if not pod.draining]
    assert plan_moves(pods, size, limits) == Moves()
    assert len(pods) == limits.clamp(size)


def test_new_pods_get_the_lowest_free_numbers() -> None:
    assert plan_moves([pod(1), pod(3)], 4, LIMITS).start == ("pod-2", "pod-4")
    assert plan_moves([], 2, LIMITS).start == ("pod-1", "pod-2")


def test_the_youngest_goes_first_and_one_at_a_time() -> None:
    assert plan_moves([pod(1), pod(2), pod(3)], 1, LIMITS) == Moves(drain="pod-3")
    reborn = replace(pod(2), started=100.0)
    assert plan_moves([pod(1), reborn, pod(3)], 1, LIMITS) == Moves(drain="pod-2")


def test_before_all_others_goes_who_has_no_process_and_then_who_is_not_ready() -> None:
    waiting, starting = pod(1, ready=False, running=False), pod(2, ready=False)
    assert plan_moves([waiting, starting, pod(3), pod(4)], 3, LIMITS).drain == "pod-1"
    assert plan_moves([starting, pod(3), pod(4)], 2, LIMITS).drain == "pod-2"


def test_nobody_drains_while_nobody_is_ready() -> None:
    assert plan_moves([pod(1, ready=False), pod(2, ready=False)], 1, LIMITS) == Moves()
    drains = pod(3, draining=True)
    assert plan_moves([pod(1, ready=False), pod(2, ready=False), drains], 1, LIMITS) == Moves()


def test_a_pod_that_drains_counts_no_more_and_is_replaced_when_more_are_wanted() -> None:
    assert plan_moves([pod(1), pod(2, draining=True)], 2, LIMITS).start == ("pod-3",)


def test_where_the_machine_is_full_the_new_pod_waits_for_the_end_of_the_old_one() -> None:
    pods = [pod(1), pod(2), pod(3), pod(4, draining=True)]
    assert plan_moves(pods, 4, LIMITS) == Moves()
    assert plan_moves(pods[:3], 4, LIMITS).start == ("pod-4",)


@pytest.mark.parametrize(
    ("text", "limits"), [("1:3", Limits(1, 3)), ("2:2", Limits(2, 2)), (" 1:256", Limits(1, 256))]
)
def test_limits_are_read_as_they_are_written(text: str, limits: Limits) -> None:
    assert Limits.parse(text) == limits
    assert Limits.parse(str(limits)) == limits


@pytest.mark.parametrize(
    "text", ["", "3", "0:3", "3:1", "1:257", "-1:3", "1:3:5", "1..3", "a:b", "1:", "٣:٤", "1:99999"]
)
def test_limits_that_cannot_be_kept_are_refused_with_what_was_expected(text: str) -> None:
    with pytest.raises(LimitsError, match="expected"):
        Limits.parse(text)
