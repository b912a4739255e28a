"""What a decision says of itself: the figures that it was made from, so that the sentence is an argument."""

from __future__ import annotations

from copydesk.autoscaler.capacity import Capacity
from copydesk.autoscaler.decide import Policy
from copydesk.autoscaler.decision import Inputs, Rule
from copydesk.autoscaler.limits import Limits
from copydesk.autoscaler.reason import explain
from copydesk.autoscaler.rules import Rules

POLICY = Policy(Capacity.assumed(32.0, 1000.0), Limits(1, 10), Rules())


def inputs(*, size: int = 1, urgent: float = 0.0, share: float = 0.85, peak: int = 0) -> Inputs:
    return Inputs(
        size=size,
        concurrency=0.0,
        demand=0.0,
        demand_6=0.0,
        urgent=urgent,
        demand_20=0.0,
        demand_60=0.0,
        slope=0.0,
        share=share,
        target=27.2,
        refinement=1.0,
        ready=size,
        pending=0,
        stuck=0,
        effective=float(size),
        wanted=0,
        peak=peak,
        forecast=None,
        forecast_error=None,
        stale_gateways=(),
        silent_s=0.0,
    )


def test_a_jump_is_told_by_the_pods_that_it_takes_and_not_only_by_its_work() -> None:
    told = explain(Rule.PANIC, Rule.PANIC, inputs(urgent=1.04, share=0.85), 3, POLICY)
    assert told == (
        "add 2 to be 3: demand has jumped to 1.0 pods' worth; at 85% a pod that takes 2, and 1.0 work or soon will"
    )


def test_a_fleet_that_is_held_at_its_recent_peak_names_it() -> None:
    told = explain(Rule.HOLD_RECENT, Rule.HOLD_RECENT, inputs(size=3, peak=3), 3, POLICY)
    assert told == "stay at 3: it took 3 within the last 300 s"


def test_a_fleet_above_its_recent_peak_says_that_it_is_the_jump_which_holds_it() -> None:
    told = explain(Rule.HOLD_RECENT, Rule.HOLD_RECENT, inputs(size=3, peak=2), 3, POLICY)
    assert told == ("stay at 3: it took 2 within the last 300 s, and what works does not go within 60 s of a jump")
