"""A decision in words, for whoever is woken by it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from copydesk.autoscaler.decision import Inputs, Rule

if TYPE_CHECKING:
    from copydesk.autoscaler.decide import Policy


def explain(rule: Rule, called: Rule, inputs: Inputs, replicas: int, policy: Policy) -> str:
    """Return one sentence that says what was done and why: by `rule`, or what `called` for it before limits."""
    why = f"{_WHY[called](inputs, policy)}{_doubt(called, inputs, policy)}"
    if rule is Rule.LIMIT:
        why = f"{why}, and the limits are {policy.limits.min_pods} to {policy.limits.max_pods}"
    return f"{_what(inputs.size, replicas)}: {why}"


def _what(size: int, replicas: int) -> str:
    if replicas == size:
        return f"stay at {size}"
    return f"{'add' if replicas > size else 'remove'} {abs(replicas - size)} to be {replicas}"


def _doubt(called: Rule, inputs: Inputs, policy: Policy) -> str:
    """Say that less is asked of a pod than was assumed, where that counts."""
    if policy.capacity.measured or inputs.refinement >= 1.0 or called not in _BY_TARGET:
        return ""
    return f" (what was assumed of a pod was found too high: {inputs.refinement:.0%} of it counts)"


def _work(inputs: Inputs) -> str:
    rising = f", rising by {inputs.slope * 60.0:.1f} a minute" if inputs.slope > 0.0 else ""
    needed = f"at {inputs.share:.0%} a pod that takes {inputs.wanted}"
    return f"demand is {inputs.demand_20:.1f} pods' worth{rising}; {needed}"


def _stale(inputs: Inputs, _: Policy) -> str:
    who = ", ".join(inputs.stale_gateways[:3])
    more = len(inputs.stale_gateways) - 3
    named = f"no news of {who}{f' and {more} more' if more > 0 else ''}" if who else "not all is known"
    return f"{named}, and what is missing is not zero"


def _whole(pods: float) -> int:
    """Round as `decide` does: pods are ordered whole."""
    return math.ceil(pods - 1e-9)


def _recent(inputs: Inputs, policy: Policy) -> str:
    took = f"it took {inputs.peak} within the last {policy.rules.memory_s:.0f} s"
    if inputs.peak >= inputs.size:
        return took
    return f"{took}, and what works does not go within {policy.rules.panic_s:.0f} s of a jump"


_BY_TARGET = (Rule.STEADY, Rule.UP, Rule.PANIC, Rule.DOWN)

_WHY: dict[Rule, Callable[[Inputs, Policy], str]] = {
    Rule.STEADY: lambda i, _: _work(i),
    Rule.UP: lambda i, _: _work(i),
    Rule.PANIC: lambda i, _: (
        f"demand has jumped to {i.urgent:.1f} pods' worth; at {i.share:.0%} a pod that takes "
        f"{_whole(i.urgent / i.share)}, and {i.effective:.1f} work or soon will"
    ),
    Rule.FORECAST: lambda i, _: (
        f"days before (right to {i.forecast_error or 0.0:.0%}) promise that it will take {i.forecast}"
    ),
    Rule.STUCK: lambda i, _: f"{i.stuck} pods do not become ready, and are not waited for",
    Rule.DOWN: lambda i, _: f"{_work(i)}, and took no more than {i.peak} lately",
    Rule.WITHDRAW: lambda i, _: f"{i.ready} pods work, more than it takes; some that still start are spare",
    Rule.HOLD_STALE: _stale,
    Rule.HOLD_SILENT: lambda i, _: f"nothing has been heard for {i.silent_s:.0f} s",
    Rule.HOLD_NEW: lambda i, p: (
        f"who has just begun to lead, or to hear again, does not shrink for {p.rules.new_leader_s:.0f} s"
    ),
    Rule.HOLD_RECENT: _recent,
    Rule.HOLD_GUARD: lambda i, _: (
        f"with fewer, {i.demand_60:.1f} pods' worth of the last minute would be too much"
    ),
    Rule.HOLD_PACE: lambda i, p: f"at most {p.rules.shrink_share:.0%} go within {p.rules.shrink_s:.0f} s",
    Rule.HOLD_SLACK: lambda i, p: f"fewer than {p.rules.slack:.0%} could go, and might be called back by noise",
}
