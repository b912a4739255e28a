"""What follows from the end of a child, and the order of a stop."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.cli.fleet.plan import ChildSpec, Role, Vital
from copydesk.cli.fleet.policy import Backoff, Ended, GiveUp, Restart, decide, stop_phases

BACKOFF = Backoff(first=0.2, cap=15.0, healthy_after=30.0, early_limit=5)


def ended(code: int = -9, failures: int = 0, healthy_s: float = 1.0, ever_up: bool = True) -> Ended:
    return Ended(code, failures, healthy_s, ever_up)


def test_the_first_restart_comes_at_once_and_each_further_one_waits_twice_as_long() -> None:
    delays = []
    failures = 0
    for _ in range(4):
        verdict = decide(ended(failures=failures), 2, BACKOFF, jitter=0.0)
        assert isinstance(verdict, Restart)
        failures = verdict.failures
        delays.append(verdict.delay)
    assert delays == pytest.approx([0.2, 0.4, 0.8, 1.6])


def test_thirty_healthy_seconds_clear_the_account() -> None:
    assert decide(ended(failures=7, healthy_s=30.0), 2, BACKOFF, 0.0) == Restart(0.2, 1)
    assert decide(ended(failures=1, healthy_s=29.9), 2, BACKOFF, 0.0) == Restart(0.4, 2)


@given(st.integers(1, 10_000), st.floats(0.0, 1.0, exclude_max=True))
def test_a_delay_is_never_longer_than_the_cap_nor_shorter_than_half_the_first(
    failures: int, jitter: float
) -> None:
    delay = BACKOFF.delay(failures, jitter)
    assert BACKOFF.first / 2 <= delay <= BACKOFF.cap
    assert BACKOFF.delay(failures, 0.0) / 2 <= delay <= BACKOFF.delay(failures, 0.0)


def test_exit_code_two_of_a_service_ends_the_fleet_with_that_code() -> None:
    verdict = decide(ended(code=2), 2, BACKOFF, 0.0)
    assert isinstance(verdict, GiveUp)
    assert verdict.exit_code == 2
    assert "setting or the model is wrong" in verdict.reason


def test_exit_code_two_of_a_program_that_means_nothing_by_it_is_a_crash() -> None:
    assert isinstance(decide(ended(code=2), None, BACKOFF, 0.0), Restart)


def test_a_child_that_was_never_up_is_given_up_after_its_fifth_death() -> None:
    assert isinstance(decide(ended(code=1, failures=3, ever_up=False, healthy_s=0.0), 2, BACKOFF, 0.0), Restart)
    verdict = decide(ended(code=1, failures=4, ever_up=False, healthy_s=0.0), 2, BACKOFF, 0.0)
    assert isinstance(verdict, GiveUp)
    assert verdict.exit_code == 1


def test_a_child_that_was_up_once_is_never_given_up() -> None:
    assert isinstance(decide(ended(code=1, failures=10_000), 2, BACKOFF, 0.0), Restart)


def test_a_pod_that_joined_is_never_given_up_whatever_becomes_of_it() -> None:
    for code in (1, 2, -9):
        verdict = decide(ended(code=code, failures=99, ever_up=False, healthy_s=0.0), 2, BACKOFF, 0.0, Vital.NEVER)
        assert isinstance(verdict, Restart)


def test_an_autoscaler_that_cannot_begin_ends_the_fleet_and_one_that_could_does_not() -> None:
    first = decide(ended(code=2, ever_up=False, healthy_s=0.0), 2, BACKOFF, 0.0, Vital.AT_FIRST)
    assert isinstance(first, GiveUp)
    assert isinstance(decide(ended(code=2), 2, BACKOFF, 0.0, Vital.AT_FIRST), Restart)


def test_a_clean_exit_that_nobody_asked_for_is_a_reason_to_restart() -> None:
    assert decide(ended(code=0), 2, BACKOFF, 0.0) == Restart(0.2, 1)


def test_a_fleet_stops_from_the_gateway_to_nats_with_the_pods_side_by_side() -> None:
    specs = [
        ChildSpec("nats", Role.NATS, ("x",), grace=5.0),
        ChildSpec("eds", Role.EDS, ("x",), grace=5.0),
        ChildSpec("pod-1", Role.POD, ("x",), grace=15.0),
        ChildSpec("pod-2", Role.POD, ("x",), grace=20.0),
        ChildSpec("gateway", Role.GATEWAY, ("x",), grace=65.0),
        ChildSpec("autoscaler", Role.AUTOSCALER, ("x",), grace=5.0),
    ]
    phases = stop_phases(specs)
    names = [phase.names for phase in phases]
    assert names == [("autoscaler",), ("gateway",), ("pod-1", "pod-2"), ("eds",), ("nats",)]
    assert [phase.grace for phase in phases] == [5.0, 65.0, 20.0, 5.0, 5.0]


def test_roles_that_a_fleet_lacks_make_no_phase() -> None:
    assert [phase.names for phase in stop_phases([ChildSpec("nats", Role.NATS, ("x",))])] == [("nats",)]
