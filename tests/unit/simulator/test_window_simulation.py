"""The fluid that days are simulated with, held against short windows that are simulated request by request.

Pods are a quarter of the assumed one, so that a window of six of them is tens of thousands of requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import pytest

from copydesk.routing import warmth
from copydesk.simulator.curve_pod import Curve, CurvePod
from copydesk.simulator.fluid import Flow, Fluid
from copydesk.simulator.gateway import SLOW_START_S
from copydesk.simulator.profile import ASSUMED_POD, Profile
from copydesk.simulator.requests import Replay, Window
from copydesk.simulator.score import SHED_SHARE
from copydesk.simulator.trace import Seconds

PART = 0.25
SMALL = Profile.of(
    msgspec.structs.replace(
        ASSUMED_POD,
        rate=PART * ASSUMED_POD.rate,
        concurrency=PART * ASSUMED_POD.concurrency,
        curve=tuple(
            msgspec.structs.replace(point, rate=PART * point.rate, concurrency=PART * point.concurrency)
            for point in ASSUMED_POD.curve
        ),
    )
)
PODS, GATEWAYS, ROOM = 6, 3, 64
FULL = PODS * SMALL.capacity.rate


@dataclass(frozen=True, slots=True)
class Both:
    """One window, both ways."""

    arrivals: Seconds
    requests: Replay
    fluid: list[Flow]

    def of_fluid(self, name: str) -> Seconds:
        return np.array([getattr(flow, name) for flow in self.fluid])

    def violations(self) -> tuple[int, int]:
        """Seconds of violation, of the requests and of the fluid."""

        def count(p99_ms: Seconds, shed: Seconds) -> int:
            return int(((p99_ms > SMALL.capacity.slo_ms) | (shed > SHED_SHARE * self.arrivals)).sum())

        return (
            count(self.requests.p99_ms, self.requests.shed),
            count(self.of_fluid("p99_ms"), self.of_fluid("shed")),
        )

    def shed(self) -> tuple[float, float]:
        """Shares of all requests."""
        total = self.arrivals.sum()
        return self.requests.shed.sum() / total, self.of_fluid("shed").sum() / total

    def in_flight(self) -> tuple[float, float]:
        """Means of the requests at pods."""
        return self.requests.in_flight.mean(), self.of_fluid("in_flight").mean()

    def p99_ms(self) -> tuple[float, float]:
        """Means over the seconds."""
        return self.requests.p99_ms.mean(), self.of_fluid("p99_ms").mean()


def both(shares: Sequence[float] | Seconds, joins: Sequence[float] = ()) -> Both:
    """Let so large shares of what six pods hold come in each second, and more pods join."""
    arrivals = np.random.default_rng(1).poisson(np.asarray(shares) * FULL).astype(np.float64)
    fluid, worth = Fluid(SMALL, GATEWAYS * ROOM), SMALL.warming()
    flows = []
    for second, coming in enumerate(arrivals.tolist()):
        ages = [second + 0.5 - join for join in joins if second + 0.5 > join]
        working = PODS + sum(worth[int(100 * warmth(age, SLOW_START_S))] for age in ages)
        flows.append(fluid.step(coming, working))
    return Both(arrivals, Window(arrivals, SMALL, PODS, joins, GATEWAYS, ROOM).run(1), flows)


@pytest.mark.parametrize("share", [0.3, 0.6, 0.85])
def test_of_a_steady_load_they_tell_the_same(share: float) -> None:
    found = both([share] * 20)
    assert found.violations() == (0, 0)
    assert found.shed() == (0.0, 0.0)
    assert found.in_flight()[0] == pytest.approx(found.in_flight()[1], rel=0.02)
    assert found.p99_ms()[0] == pytest.approx(found.p99_ms()[1], rel=0.05)


def test_near_what_a_pod_holds_the_fluid_leaves_out_no_more_than_a_seventh_of_p99() -> None:
    found = both([0.93] * 25)
    assert found.violations() == (0, 0)
    assert found.in_flight()[0] == pytest.approx(found.in_flight()[1], rel=0.03)
    assert found.p99_ms()[0] == pytest.approx(found.p99_ms()[1], rel=0.15)


def test_of_a_ramp_they_tell_the_same() -> None:
    found = both(np.linspace(0.3, 0.9, 30))
    assert found.violations() == (0, 0)
    assert found.in_flight()[0] == pytest.approx(found.in_flight()[1], rel=0.02)
    assert found.p99_ms()[0] == pytest.approx(found.p99_ms()[1], rel=0.05)


def test_of_an_overload_they_tell_the_same() -> None:
    found = both([0.7] * 8 + [1.5] * 15 + [0.7] * 12)
    requests, fluid = found.violations()
    assert requests >= 15
    assert abs(requests - fluid) <= 2
    requests_shed, fluid_shed = found.shed()
    assert requests_shed > 0.1
    assert requests_shed == pytest.approx(fluid_shed, rel=0.08)
    assert found.in_flight()[0] == pytest.approx(found.in_flight()[1], rel=0.03)
    assert found.p99_ms()[0] == pytest.approx(found.p99_ms()[1], rel=0.08)


def test_of_pods_that_join_an_overloaded_fleet_they_tell_the_same() -> None:
    found = both([0.8] * 5 + [1.35] * 35, joins=[15.0, 16.5, 18.0, 19.5])
    requests, fluid = found.violations()
    assert 10 <= requests <= 20
    assert abs(requests - fluid) <= 2
    requests_shed, fluid_shed = found.shed()
    assert requests_shed == pytest.approx(fluid_shed, rel=0.15)
    assert found.in_flight()[0] == pytest.approx(found.in_flight()[1], rel=0.03)
    assert found.p99_ms()[0] == pytest.approx(found.p99_ms()[1], rel=0.08)


def test_each_request_of_a_window_is_answered_refused_or_still_there() -> None:
    found = both([1.3] * 10).requests
    came = both([1.3] * 10).arrivals.sum()
    left = came - found.served.sum() - found.shed.sum()
    assert 0 < left <= PODS * SMALL.concurrencies[-1] + GATEWAYS * ROOM
    assert len(found.latencies_ms) == found.served.sum()


def test_a_window_is_the_same_with_the_same_seed() -> None:
    one, other = both([0.9] * 5).requests, both([0.9] * 5).requests
    assert one.latencies_ms.tolist() == other.latencies_ms.tolist()


def test_what_waits_too_long_at_the_gate_is_refused_before_the_deadline_and_not_after() -> None:
    found = both([3.0] * 10).requests
    assert found.shed.sum() > 0.5 * both([3.0] * 10).arrivals.sum()
    # The gate counts on the 95th percentile of the time at a pod: one in twenty may be later.
    late = (found.latencies_ms > 1000.0 * SMALL.deadline_s).mean()
    assert late < 0.05


def test_a_pod_answers_as_many_a_second_as_its_curve_says_of_what_it_holds() -> None:
    curve = Curve.of(SMALL)
    pod: CurvePod[int] = CurvePod(0, 100, curve)
    draws = np.random.default_rng(3).standard_normal(6000).tolist()
    for number in range(50):
        due = pod.begin(number, draws[number], 0.0)
    for number in range(50, 5050):
        _, _ = pod.end(due)
        due = pod.begin(number, draws[number], due)
    assert 5000 / due == pytest.approx(np.interp(50, SMALL.concurrencies, SMALL.rates), rel=0.05)


def test_a_pod_beyond_its_curve_is_no_faster_than_at_its_end() -> None:
    curve = Curve.of(SMALL)
    last = len(curve.speeds) - 1
    assert 2 * last * curve.speed(2 * last) == pytest.approx(last * curve.speed(last))
