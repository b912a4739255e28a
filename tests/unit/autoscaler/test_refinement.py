"""The slow loop: the target falls quickly when pods miss the objective within it, and rises with care."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from copydesk.autoscaler import Capacity, GatewayDemand, Limits, Observation, Pod, PodState, Policy, State, decide
from copydesk.autoscaler.refinement import DOWN, LEAST, MOST, UP, Refinement, refine

SLO = 1000.0
EVERY = 2.0


def after(
    seconds: float,
    *,
    load: float = 1.0,
    p99_ms: float | None = 500.0,
    clean: bool = True,
    known: Refinement | None = None,
    start: float = 0.0,
) -> Refinement:
    """Let the same be seen for so long."""
    known = known or Refinement()
    for step in range(int(seconds / EVERY) + 1):
        known = refine(known, load=load, p99_ms=p99_ms, slo_ms=SLO, clean=clean, now=start + step * EVERY)
    return known


def test_it_falls_after_ten_seconds_and_again_each_half_minute() -> None:
    assert after(8.0, p99_ms=1200.0).factor == 1.0
    assert after(10.0, p99_ms=1200.0).factor == pytest.approx(DOWN)
    assert after(38.0, p99_ms=1200.0).factor == pytest.approx(DOWN)
    assert after(40.0, p99_ms=1200.0).factor == pytest.approx(DOWN**2)


def test_it_falls_no_further_than_to_its_least() -> None:
    assert after(3600.0, p99_ms=5000.0).factor == LEAST


def test_pods_that_have_more_than_their_target_say_nothing_of_it() -> None:
    assert after(600.0, load=1.2, p99_ms=5000.0).factor == 1.0


@pytest.mark.parametrize("unsure", [{"p99_ms": None}, {"p99_ms": 5000.0, "clean": False}])
def test_what_is_not_known_changes_nothing(unsure: dict[str, bool | float | None]) -> None:
    assert after(7200.0, **unsure).factor == 1.0  # type: ignore[arg-type]


def test_a_gap_in_the_evidence_begins_the_wait_anew() -> None:
    bad = after(8.0, p99_ms=1200.0)
    unsure = after(0.0, p99_ms=None, known=bad, start=10.0)
    assert after(8.0, p99_ms=1200.0, known=unsure, start=12.0).factor == 1.0


def test_it_rises_by_a_little_after_each_half_hour_at_the_target_far_within_the_objective() -> None:
    assert after(1798.0).factor == 1.0
    assert after(1800.0).factor == pytest.approx(1.0 + UP)
    assert after(3600.0).factor == pytest.approx(1.0 + 2 * UP)


def test_it_rises_no_further_than_to_its_most() -> None:
    assert after(40_000.0).factor == MOST


def test_it_does_not_rise_on_what_idle_pods_show_nor_near_the_objective() -> None:
    assert after(7200.0, load=0.5).factor == 1.0
    assert after(7200.0, p99_ms=800.0).factor == 1.0


def test_what_took_an_hour_to_rise_is_taken_back_in_half_a_minute() -> None:
    risen = after(3600.0)
    assert after(30.0, p99_ms=1200.0, known=risen, start=3602.0).factor < 1.0


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.floats(allow_nan=True), st.none() | st.floats(0.0, 1e7), st.booleans(), st.floats(0.0, 2000.0)
        ),
        max_size=60,
    )
)
def test_whatever_is_seen_it_stays_in_its_bounds(seen: list[tuple[float, float | None, bool, float]]) -> None:
    known, now = Refinement(), 0.0
    for load, p99_ms, clean, later in seen:
        now += later
        known = refine(known, load=load, p99_ms=p99_ms, slo_ms=SLO, clean=clean, now=now)
        assert LEAST <= known.factor <= MOST


def test_a_fleet_whose_pods_do_less_than_certified_is_enlarged_until_it_holds_and_no_further() -> None:
    policy = Policy(Capacity(20.0, 100.0, SLO, (0.0, 20.0), (0.0, 1.0)), Limits(1, 100))
    state, size, now = State(), 24, 0.0
    for _ in range(300):
        # 400 requests in flight; beyond 14 a pod, a quarter less than the certificate says, answers are too late.
        p99_ms = 1500.0 if 400.0 / size > 14.0 else 700.0
        pods = tuple(Pod(str(number), PodState.READY, -100.0) for number in range(size))
        report = GatewayDemand("a", now, 400.0, 0.0, 0.0, 0.2, p99_ms)
        decision, state = decide(policy, state, Observation(size, (report,), pods), now)
        size, now = decision.replicas, now + EVERY
    assert 400.0 / size <= 14.0
    assert size <= 36
    assert state.refinement.factor < 1.0
    assert decision.inputs.refinement == state.refinement.factor


def test_the_evidence_is_carried_from_decision_to_decision() -> None:
    known = Refinement(bad_since=0.0)
    found = refine(known, load=1.0, p99_ms=1200.0, slo_ms=SLO, clean=True, now=10.0)
    assert found == replace(known, factor=DOWN, changed_at=10.0, good_since=None)
