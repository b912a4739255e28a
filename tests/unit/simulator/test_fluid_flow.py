"""A fleet as a fluid: what comes is served, refused, at the pods or waits, whatever happens to the pods."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from copydesk.simulator.fluid import Fluid
from copydesk.simulator.profile import ASSUMED_POD, Profile

POD = Profile.of(ASSUMED_POD)
seconds = st.tuples(st.floats(0.0, 20_000.0), st.floats(0.0, 8.0))


@settings(max_examples=60, deadline=None)
@given(st.lists(seconds, min_size=1, max_size=20), st.floats(0.0, 5000.0))
def test_nothing_is_lost(steps: list[tuple[float, float]], room: float) -> None:
    fluid = Fluid(POD, room)
    there: float | None = None
    for coming, pods in steps:
        flow = fluid.step(coming, pods)
        assert min(flow.served, flow.shed, flow.in_flight, flow.queued, flow.p99_ms) >= 0.0
        assert flow.queued <= room + 1e-6
        gone = flow.served + flow.shed
        if there is not None and pods > 0.0:
            assert there + coming == pytest.approx(gone + flow.in_flight + flow.queued, abs=1e-6)
        there = flow.in_flight + flow.queued


@settings(max_examples=40, deadline=None)
@given(st.floats(1.0, 1225.0), st.floats(1.0, 300.0))
def test_a_steady_load_is_where_the_curve_says(rate: float, pods: float) -> None:
    fluid = Fluid(POD, 0.0)
    for _ in range(5):
        flow = fluid.step(rate * pods, pods)
    assert flow.served == pytest.approx(rate * pods, rel=1e-3)
    assert flow.in_flight == pytest.approx(pods * np.interp(rate, POD.rates, POD.concurrencies), rel=5e-3)
    assert flow.p99_ms == pytest.approx(np.interp(rate, POD.rates, POD.p99s), rel=5e-3)
    assert flow.shed == pytest.approx(0.0, abs=1e-6)


def test_pods_that_leave_answer_what_they_have() -> None:
    fluid = Fluid(POD, 0.0)
    full = fluid.step(12_000.0, 10.0)
    flow = fluid.step(1_200.0, 1.0)
    assert flow.shed == 0.0
    assert flow.in_flight == pytest.approx(full.in_flight / 10.0, rel=1e-3)
    assert flow.served == pytest.approx(1_200.0 + 0.9 * full.in_flight, rel=1e-3)


def test_waiting_adds_to_latency_and_is_worked_off() -> None:
    fluid = Fluid(POD, 10_000.0)
    fluid.step(1_000.0, 1.0)
    late = fluid.step(2_500.0, 1.0)
    assert late.queued > 0.0
    assert late.p99_ms == pytest.approx(POD.p99s[-1] + late.wait_ms)
    quiet = [fluid.step(100.0, 1.0) for _ in range(5)][-1]
    assert quiet.queued == 0.0
    assert quiet.p99_ms == pytest.approx(200.0, rel=0.01)


def test_what_would_wait_past_its_deadline_is_refused_however_much_room_there_is() -> None:
    fluid = Fluid(POD, 1e9)
    for _ in range(10):
        flow = fluid.step(5_000.0, 1.0)
    assert flow.queued <= POD.most * POD.deadline_s
    assert flow.shed == pytest.approx(5_000.0 - POD.most, rel=0.01)


def test_without_a_pod_all_is_refused() -> None:
    fluid = Fluid(POD, 100.0)
    assert fluid.step(50.0, 0.0).shed == 50.0


def test_a_pod_in_slow_start_does_more_than_its_weight_and_less_than_a_warm_one() -> None:
    parts = POD.warming()
    assert len(parts) == 101
    assert parts[0] == 0.0
    assert parts[100] == pytest.approx(1.0)
    assert all(part >= percent / 100.0 for percent, part in enumerate(parts))
    assert sorted(parts) == list(parts)
