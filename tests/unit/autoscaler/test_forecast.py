"""The season of demand: a forecast that is acted on while it has been right, and only to grow."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest

from copydesk.autoscaler import (
    Capacity,
    Decision,
    GatewayDemand,
    Limits,
    Observation,
    Pod,
    PodState,
    Policy,
    Rule,
    State,
    decide,
)
from copydesk.autoscaler.forecast import DAY, LEVEL_LEAST, LONGEST_GAP, Season, forecast, observe

AHEAD = 2
DAY_S = 86_400.0
POLICY = Policy(Capacity(20.0, 100.0, 1000.0, (0.0, 20.0), (0.0, 1.0)), Limits(1, 1000))
LEAD_S = POLICY.rules.cold_start_s


def usual(minute: int) -> float:
    """A day between 20 and 100 pods' worth, with a jump at nine in the morning."""
    hour = minute % DAY / 60.0
    return 20.0 + 40.0 * (1.0 - math.cos(hour / 24.0 * 2.0 * math.pi)) * (0.6 if hour < 9.0 else 1.0)


def watched(days: float, demand: Callable[[int], float | None], season: Season | None = None) -> Season:
    """Let a season go on by so many days, a sample a minute."""
    season = season or Season()
    first = 0 if season.minute is None else season.minute + 1
    for minute in range(first, first + round(days * DAY)):
        season = observe(season, demand(minute), 60.0 * minute + 30.0, AHEAD)
    return season


@cache
def week() -> Season:
    """Seven days, give or take a twentieth."""
    rng = random.Random(1)
    return watched(7.0, lambda minute: usual(minute) * (1.0 + rng.gauss(0.0, 0.05)))


def asked(season: Season, demand: float, size: int) -> Decision:
    """Decide in the minute that the season has come to, about a fleet that has gone on for a while."""
    assert season.minute is not None
    now, pods = 60.0 * season.minute, tuple(Pod(str(number), PodState.READY, 0.0) for number in range(size))
    state = replace(State(), season=season, leader_since=0.0)
    for at in (now + 1.0, now + 3.0):
        report = GatewayDemand("a", at, 20.0 * demand, 0.0, 0.0, 0.2, 300.0)
        decision, state = decide(POLICY, state, Observation(size, (report,), pods), at)
    return decision


def at_hour(hour: float, season: Season | None = None) -> Season:
    """The eighth day, until that hour, as usual."""
    return watched(hour / 24.0, usual, season or week())


def test_a_week_that_repeats_itself_is_forecast_within_a_twentieth() -> None:
    season = week()
    assert season.error is not None
    assert season.error < 0.05
    for hour in range(1, 24, 5):
        here = at_hour(hour)
        assert here.minute is not None
        promised = forecast(here, LEAD_S, LEAD_S + 60.0, 60.0 * here.minute)
        assert promised == pytest.approx(usual(here.minute + 1), rel=0.1)


def test_a_forecast_that_has_been_right_raises_the_fleet_before_the_morning_does() -> None:
    before_nine = at_hour(9.0 - 1.0 / 60.0)
    assert before_nine.minute is not None
    demand = usual(before_nine.minute)
    decision = asked(before_nine, demand, math.ceil(demand / 0.8))
    assert decision.rule is Rule.FORECAST
    assert decision.replicas > 1.4 * demand
    assert "days before" in decision.reason


def test_a_forecast_never_lets_a_fleet_shrink() -> None:
    late = at_hour(21.0)
    assert late.minute is not None
    demand = 1.5 * usual(late.minute)
    decision = asked(late, demand, 150)
    assert decision.inputs.forecast is not None
    assert decision.inputs.forecast < decision.inputs.wanted
    assert decision.replicas >= decision.inputs.wanted


def test_a_forecast_that_has_been_wrong_is_not_acted_on() -> None:
    rng = random.Random(2)
    hours = [rng.uniform(5.0, 150.0) for _ in range(24 * 8)]
    season = watched(7.0 + 8.975 / 24.0, lambda minute: hours[minute // 60])
    assert season.error is not None
    assert season.error >= POLICY.rules.forecast_error
    assert season.minute is not None
    assert forecast(season, LEAD_S, LEAD_S + 60.0, 60.0 * season.minute) is not None
    decision = asked(season, 20.0, 25)
    assert decision.inputs.forecast is None
    assert decision.inputs.forecast_error == season.error
    assert decision.rule is not Rule.FORECAST


def test_days_that_go_wrong_drop_a_forecast_and_days_that_go_right_restore_it() -> None:
    rng = random.Random(3)
    wrong = watched(3.0, lambda _: rng.uniform(5.0, 300.0), week())
    assert wrong.error is not None
    assert wrong.error >= POLICY.rules.forecast_error
    right = watched(11.0, usual, wrong)
    assert right.error is not None
    assert right.error < POLICY.rules.forecast_error


def test_before_a_day_of_forecasts_has_been_checked_nothing_is_said() -> None:
    assert watched(1.0, usual).error is None
    assert watched(1.9, usual).error is None
    two = watched(2.2, usual)
    assert two.error is not None
    assert asked(watched(1.5, usual), 20.0, 30).inputs.forecast is None


def test_on_a_holiday_it_follows_the_level_of_the_last_half_hour_and_wastes_no_more_than_half() -> None:
    holiday = watched(11.0 / 24.0, lambda minute: 0.35 * usual(minute), week())
    assert holiday.minute is not None
    promised = forecast(holiday, LEAD_S, LEAD_S + 60.0, 60.0 * holiday.minute)
    assert promised is not None
    assert promised <= 1.1 * LEVEL_LEAST * usual(holiday.minute + 2)
    demand = 0.35 * usual(holiday.minute)
    assert asked(holiday, demand, 200).rule is not Rule.FORECAST
    assert asked(holiday, demand, 10).replicas <= math.ceil(promised / 0.8) + 1


def test_the_day_after_a_holiday_is_not_forecast_to_be_one() -> None:
    after = watched(11.0 / 24.0, usual, watched(1.0, lambda minute: 0.35 * usual(minute), week()))
    assert after.error is not None
    assert after.error < POLICY.rules.forecast_error
    assert after.minute is not None
    promised = forecast(after, LEAD_S, LEAD_S + 60.0, 60.0 * after.minute)
    assert promised == pytest.approx(usual(after.minute + 1), rel=0.1)


def test_a_minute_without_a_sample_is_not_known_rather_than_zero() -> None:
    holes = watched(3.0, lambda minute: None if minute % 10 == 0 else usual(minute))
    assert holes.error is not None
    assert holes.error < 0.05
    assert min(value for value in holes.past[0] if value >= 0.0) >= 20.0


@pytest.mark.parametrize("gap", [LONGEST_GAP + 1, -LONGEST_GAP - 1])
def test_after_a_long_silence_or_a_clock_that_was_set_back_by_hours_it_begins_anew(gap: int) -> None:
    season = week()
    assert season.minute is not None
    assert observe(season, 50.0, 60.0 * (season.minute + gap), AHEAD).past == ()


def test_a_short_silence_is_bridged() -> None:
    season = at_hour(5.0)
    assert season.minute is not None
    later = observe(season, 50.0, 60.0 * (season.minute + LONGEST_GAP), AHEAD)
    assert later.past == season.past


def test_a_clock_that_was_set_back_by_minutes_over_a_restart_costs_no_week() -> None:
    season = at_hour(5.0)
    assert season.minute is not None
    back = observe(season, 50.0, 60.0 * (season.minute - 5), AHEAD)
    assert back == season
    later = observe(back, 50.0, 60.0 * (season.minute + 1), AHEAD)
    assert later.past == season.past
    assert len(later.today) == len(season.today) + 1
