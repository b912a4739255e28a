"""Which settings of an engine are fastest here: successive halving over a few, and a decision. Pure but for `Try`.

Every setting is measured for a short while; the slower half is dropped, and the others are measured for twice as
long, until two are left. The default stays to the end: what is not surely faster than it is not worth being
different for. (Jamieson and Talwalkar, "Non-stochastic best arm identification", AISTATS 2016.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil
from statistics import fmean

import msgspec

from copydesk.cli.onboarding.speed import Ratio, ratio_of

FIRST_S, QUICK_S = 4.0, 2.0
"""Seconds of load for a setting in the first round."""


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a pod; None leaves one as it is by default."""

    name: str
    slots: int | None = None
    draft: bool | None = None
    draft_tokens: int | None = None
    threads: int | None = None

    @property
    def changed(self) -> dict[str, int | bool]:
        """What differs from the default."""
        plain = msgspec.structs.asdict(self)
        return {key: value for key, value in plain.items() if key != "name" and value is not None}


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """Requests a second of a setting, burst by burst; none, and why, where it did not run."""

    setting: Setting
    rates: tuple[float, ...] = ()
    failure: str = ""

    @property
    def mean(self) -> float:
        """Requests a second over all bursts."""
        return fmean(self.rates) if self.rates else 0.0


class Tuned(msgspec.Struct, frozen=True, kw_only=True):
    """What was decided, why, the last measurement of each setting, and how it compares with the default."""

    setting: Setting
    why: str
    measured: tuple[Measured, ...]
    beside_default: Ratio | None = None


Try = Callable[[Setting, float, int], Measured]
"""Measures a setting for some seconds, in a round of that number."""
DEFAULT = Setting(name="default")


def settings_to_try(cores: int, *, quick: bool) -> tuple[Setting, ...]:
    """Return the settings to try, the default first; each differs from it in one thing."""
    found = [DEFAULT, Setting(name="slots=16", slots=16), Setting(name="slots=64", slots=64)]
    if quick:
        return (*found[:2], Setting(name="no drafts", draft=False))
    found += [
        Setting(name="draft_tokens=64", draft_tokens=64),
        Setting(name="draft_tokens=384", draft_tokens=384),
        Setting(name="no drafts", draft=False),
    ]
    if cores > 1:
        found.append(Setting(name=f"threads={ceil(cores / 2)}", threads=ceil(cores / 2)))
    return tuple(found)


def tune(settings: Sequence[Setting], measure: Try, first_s: float) -> Tuned:
    """Measure and decide."""
    last: dict[str, Measured] = {}
    left, seconds, number = list(settings), first_s, 1
    while True:
        measured = [measure(setting, seconds, number) for setting in left]
        last |= {one.setting.name: one for one in measured}
        if len(left) <= 2:
            break
        left = survivors(measured)
        seconds, number = 2 * seconds, number + 1
    return decide(measured, tuple(last[setting.name] for setting in settings))


def survivors(measured: Sequence[Measured]) -> list[Setting]:
    """Return the faster half, and the default."""
    keep = max(2, ceil(len(measured) / 2))
    ranked = sorted((one for one in measured if one.setting != DEFAULT), key=lambda one: -one.mean)
    return [DEFAULT, *(one.setting for one in ranked[: keep - 1])]


def decide(final: Sequence[Measured], measured: tuple[Measured, ...]) -> Tuned:
    """Take the fastest of the last round if it is surely faster than the default."""
    default = next(one for one in final if one.setting == DEFAULT)
    rivals = [one for one in final if one.rates and one.setting != DEFAULT]
    best = max(rivals, key=lambda one: one.mean, default=None)
    if best is None:
        return Tuned(setting=DEFAULT, why="nothing else ran", measured=measured)
    if not default.rates:
        return Tuned(setting=best.setting, why=f"the default does not run: {default.failure}", measured=measured)
    count = min(len(best.rates), len(default.rates))
    beside = ratio_of(best.rates[:count], default.rates[:count])
    if beside.low > 1.0:
        return Tuned(
            setting=best.setting, why="surely faster than the default", measured=measured, beside_default=beside
        )
    return Tuned(
        setting=DEFAULT,
        why=f"nothing is surely faster; {best.setting.name} came nearest",
        measured=measured,
        beside_default=beside,
    )
