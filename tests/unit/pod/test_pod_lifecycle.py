from hypothesis import given
from hypothesis import strategies as st

from copydesk.common.messages import EndpointState
from copydesk.inference.pod.lifecycle import (
    Backoff,
    Patience,
    Restart,
    is_hung,
    plan_restart,
    pod_state,
    silence_after,
)

POLICY = Backoff(first=0.1, cap=10.0, healthy_after=30.0)
PATIENCE = Patience(start=600.0, answer=5.0)


def delays(count: int, chance: float = 0.0) -> list[float]:
    failures, result = 0, []
    for _ in range(count):
        restart = plan_restart(POLICY, failures=failures, lived=1.0, chance=chance)
        failures = restart.failures
        result.append(round(restart.delay, 6))
    return result


def test_the_delay_doubles_from_nearly_nothing_up_to_the_cap() -> None:
    assert delays(9) == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]


def test_chance_takes_up_to_half_of_the_delay_away() -> None:
    assert delays(3, chance=0.999999) == [0.05, 0.1, 0.2]


def test_a_child_that_was_healthy_for_long_starts_over() -> None:
    assert plan_restart(POLICY, failures=8, lived=30.0, chance=0.0) == Restart(failures=1, delay=0.1)


@given(
    failures=st.integers(0, 10_000),
    lived=st.floats(0, 1e6),
    chance=st.floats(0, 1, exclude_max=True),
)
def test_a_delay_is_positive_and_never_above_the_cap(failures: int, lived: float, chance: float) -> None:
    restart = plan_restart(POLICY, failures=failures, lived=lived, chance=chance)
    assert 0 < restart.delay <= POLICY.cap
    assert restart.failures >= 1


def test_a_child_that_never_answered_gets_the_time_to_start() -> None:
    assert not is_hung(PATIENCE, answered=False, silent=600.0)
    assert is_hung(PATIENCE, answered=False, silent=600.1)


def test_a_child_that_has_answered_once_must_go_on_answering() -> None:
    assert not is_hung(PATIENCE, answered=True, silent=5.0)
    assert is_hung(PATIENCE, answered=True, silent=5.1)


def test_silence_grows_by_the_time_that_was_waited() -> None:
    assert silence_after(1.0, passed=0.2, expected=0.5) == 1.2


def test_of_a_stall_only_the_wait_that_it_fell_into_counts_as_silence() -> None:
    assert silence_after(1.0, passed=3600.0, expected=0.5) == 1.5


def test_one_ready_worker_and_an_engine_that_answers_make_a_ready_pod() -> None:
    workers = (None, EndpointState.WARMING, EndpointState.READY)
    assert pod_state(draining=False, engine_answers=True, workers=workers) is EndpointState.READY


def test_a_pod_without_engine_or_without_a_ready_worker_is_warming() -> None:
    ready, warming = EndpointState.READY, EndpointState.WARMING
    assert pod_state(draining=False, engine_answers=False, workers=[ready]) is warming
    assert pod_state(draining=False, engine_answers=True, workers=[warming, None]) is warming


def test_draining_is_said_whatever_the_children_say() -> None:
    state = pod_state(draining=True, engine_answers=True, workers=[EndpointState.READY])
    assert state is EndpointState.DRAINING
