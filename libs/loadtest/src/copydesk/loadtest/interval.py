"""Between which rates the highest lies that a fleet holds, from all the trials of a search."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from copydesk.loadtest.bounds import surely_above, surely_below
from copydesk.loadtest.trial import Trial
from copydesk.loadtest.verdict import Rules, Verdict, breaks_down, judge

UPPER = 0.975
LOWER = 0.995
"""Confidence of the ends, which together make 95 %. The lower one is the highest of some five rates near the
answer that might have been it; so each of these has a fifth of what may be wrong (Bonferroni)."""


def interval(trials: Sequence[Trial], answer: float, rules: Rules) -> tuple[float, float | None]:
    """Return both ends, 0 and None where the trials show none.

    The more requests a second, the more of them miss the objective. So what trials at and above a rate show
    together, up to the answer, bounds what happens at it, and the lower end is the highest rate of which this is
    surely little enough; likewise the upper end, from the trials above the answer. All valid trials count,
    whatever they said, or the lucky ones would have chosen themselves; and requests count for what they are worth
    (see `copydesk.loadtest.clusters`).
    """
    valid = [trial for trial in trials if judge(trial, rules).verdict is not Verdict.INVALID]
    below = sorted({trial.rate for trial in valid if trial.rate <= answer}, reverse=True)
    above = sorted({trial.rate for trial in valid if trial.rate > answer})
    held = (rate for rate in below if _hold((one for one in valid if rate <= one.rate <= answer), rules))
    broke = (rate for rate in above if _break([one for one in valid if answer < one.rate <= rate], rules))
    return next(held, 0.0), next(broke, None)


def _hold(trials: Iterable[Trial], rules: Rules) -> bool:
    return surely_below(rules.slow_share, *_worth(trials), LOWER)


def _break(trials: Sequence[Trial], rules: Rules) -> bool:
    if any(breaks_down(trial, rules) for trial in trials if not trial.stopped):
        return True
    return surely_above(rules.slow_share, *_worth(trials), UPPER)


def _worth(trials: Iterable[Trial]) -> tuple[float, float]:
    """Return how many missed, and of how many, counted as independent ones."""
    pairs = [(trial.misses / trial.design_effect, trial.arrivals / trial.design_effect) for trial in trials]
    return sum(misses for misses, _ in pairs), sum(arrivals for _, arrivals in pairs)
