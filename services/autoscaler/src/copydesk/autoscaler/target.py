"""How much of what a pod can do it shall be given: the rest is headroom for what comes before pods can.

The steeper demand has risen lately and the longer a pod takes to start, the more headroom: `1 / (1 + g x L90)` of
the certified rate, where g is the 99th percentile of the relative rise a second over the last day; not below the
rate at half of the certified concurrency, not above that at 85 % of it.
"""

from __future__ import annotations

from copydesk.autoscaler.capacity import Capacity
from copydesk.autoscaler.rules import Rules

DAY_MINUTES = 1440
HIGHEST = 0.92
"""Of R*, whatever the slow loop has found: above that, any pod that is a little slow is too slow."""


def share(capacity: Capacity, rules: Rules, ramp: float, factor: float) -> float:
    """Return the part of R* that a pod shall do; `factor` is that of the slow loop."""
    least, most = (capacity.share(part * capacity.concurrency) for part in (rules.least_share, rules.most_share))
    wanted = 1.0 / (1.0 + max(0.0, ramp) * rules.cold_start_s)
    return min(HIGHEST, min(most, max(least, wanted)) * factor)


def steepest(ramps: tuple[float, ...], prior: float) -> float:
    """Return the 99th percentile of the ramps of a day, of which the minutes not yet seen count as `prior`."""
    unseen = DAY_MINUTES - len(ramps)
    rank = DAY_MINUTES // 100
    above = sorted((ramp for ramp in ramps if ramp > prior), reverse=True)
    if len(above) > rank:
        return above[rank]
    if unseen + len(above) > rank:
        return prior
    return sorted(ramps, reverse=True)[min(rank, len(ramps) - 1)]
