"""The season of demand: what days before say of the next minutes, and how wrong they have been lately.

A minute is forecast as the mean of that minute on days before, of which the same day of the week counts half once
it is known, times how far the last half hour was above or below what these days had. It is made each minute as it
would have been made for it in time, and its weighted absolute percentage error, sum |forecast - actual| / sum
actual, is kept for seven days. Only a forecast that has been right may be acted on. SageServe (arXiv:2502.14617)
shows what that is worth with fleets of language models: up to a quarter of the GPU hours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

DAY = 1440
DAYS = 7
UNKNOWN = -1.0
LEVEL_MINUTES = 30
LEVEL_LEAST, LEVEL_MOST = 0.5, 1.5
NEIGHBOURS = 3
LONGEST_GAP = 180
"""Minutes without a sample after which the season begins anew: nobody watched."""
LEAST_BACKTEST = DAY
"""Minutes with a forecast and an outcome, below which nothing is said of the error."""


@dataclass(frozen=True, slots=True)
class Season:
    """Demand by the minute. `past` are whole days, oldest first, `today` the minutes of the present one.

    `minute` is the one that is being measured, from the beginning of the clock, `total` and `count` its
    samples. `levels` are the last levels, newest last; `errors` (|error|, actual, minutes) of each day, `wrong` of
    today.
    """

    past: tuple[tuple[float, ...], ...] = ()
    today: tuple[float, ...] = ()
    minute: int | None = None
    total: float = 0.0
    count: int = 0
    levels: tuple[float, ...] = ()
    errors: tuple[tuple[float, float, int], ...] = ()
    wrong: tuple[float, float, int] = (0.0, 0.0, 0)

    @property
    def error(self) -> float | None:
        """The WAPE of the last seven days and today, None until a day's worth of forecasts has been checked."""
        checked = (*self.errors, self.wrong)
        actual = sum(day[1] for day in checked)
        if sum(day[2] for day in checked) < LEAST_BACKTEST or not actual > 0.0:
            return None
        return sum(day[0] for day in checked) / actual


def observe(season: Season, demand: float | None, now: float, ahead: int) -> Season:
    """Return the season with one more sample, None for one that is missing; forecasts are made `ahead` minutes."""
    minute = math.floor(now / 60.0)
    if season.minute is not None and 0 < season.minute - minute <= LONGEST_GAP:
        return season  # the clock was set back over a restart: what is known of these minutes stands
    if season.minute is None or not 0 <= minute - season.minute <= LONGEST_GAP:
        season = Season(minute=minute, today=(UNKNOWN,) * (minute % DAY))
    while season.minute is not None and season.minute < minute:
        season = _close(season, season.minute, ahead)
    if demand is None:
        return season
    return replace(season, total=season.total + demand, count=season.count + 1)


def forecast(season: Season, first_s: float, last_s: float, now: float) -> float | None:
    """Return the highest demand that the days before promise between `first_s` and `last_s` from `now`."""
    if not season.past or not season.levels:
        return None
    first, last = (math.floor((now + seconds) / 60.0) for seconds in (first_s, last_s))
    found = [value for minute in range(first, last + 1) if (value := _base(season, minute)) is not None]
    return max(found) * season.levels[-1] if found else None


def _close(season: Season, minute: int, ahead: int) -> Season:
    actual = season.total / season.count if season.count else UNKNOWN
    wrong = _checked(season, minute, actual, ahead)
    today = (*season.today, actual)
    season = replace(
        season,
        today=today,
        minute=minute + 1,
        total=0.0,
        count=0,
        wrong=wrong,
        levels=_levels(season, today, ahead),
    )
    if (minute + 1) % DAY:
        return season
    past = (*season.past, today)[-DAYS:]
    errors = (*season.errors, wrong)[-DAYS:]
    return replace(season, past=past, today=(), errors=errors, wrong=(0.0, 0.0, 0))


def _checked(season: Season, minute: int, actual: float, ahead: int) -> tuple[float, float, int]:
    base = _base(season, minute)
    if actual == UNKNOWN or base is None or len(season.levels) < ahead:
        return season.wrong
    wrong, total, count = season.wrong
    return wrong + abs(base * season.levels[-ahead] - actual), total + actual, count + 1


def _levels(season: Season, today: tuple[float, ...], ahead: int) -> tuple[float, ...]:
    start = max(0, len(today) - LEVEL_MINUTES)
    pairs = [(today[place], _base(season, place)) for place in range(start, len(today))]
    known = [(actual, base) for actual, base in pairs if actual != UNKNOWN and base is not None]
    expected = sum(base for _, base in known)
    level = sum(actual for actual, _ in known) / expected if expected > 0.0 else 1.0
    return (*season.levels, min(LEVEL_MOST, max(LEVEL_LEAST, level)))[-ahead - 1 :]


def _base(season: Season, minute: int) -> float | None:
    place = minute % DAY
    near = [day[place] for day in season.past[-NEIGHBOURS:] if day[place] != UNKNOWN]
    usual = sum(near) / len(near) if near else None
    same = season.past[0][place] if len(season.past) == DAYS else UNKNOWN
    if same == UNKNOWN:
        return usual
    return same if usual is None else 0.5 * (same + usual)
