"""All policies on one trace."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import msgspec

import copydesk.autoscaler as autoscaler
from copydesk.autoscaler.limits import Limits, LimitsError
from copydesk.autoscaler.rules import Rules
from copydesk.simulator.clairvoyant import plan
from copydesk.simulator.fleet import Luck
from copydesk.simulator.ours import Copydesk
from copydesk.simulator.policy import Policy
from copydesk.simulator.profile import Profile
from copydesk.simulator.rivals import TARGET, Hpa, Kpa, Ray
from copydesk.simulator.run import Timeline, first_size, run, run_plan
from copydesk.simulator.score import PRICE_PER_HOUR, Score, score
from copydesk.simulator.trace import Trace

OURS, CLAIRVOYANT = "copydesk", "clairvoyant"
RIVALS: Mapping[str, Callable[[float, Limits], Policy]] = {
    "hpa": partial(Hpa, up_ratio=3.0),
    "kpa": partial(Kpa, stable_s=30, down_delay_s=300),
    "ray": partial(Ray, look_back_s=10, up_s=0.0, down_factor=0.3),
}


@dataclass(frozen=True, slots=True)
class Setting:
    """What all policies have in common, and where each aims: `rival_target` is a part of the certified C*."""

    limits: Limits = field(default_factory=Limits)
    luck: Luck = field(default_factory=Luck)
    price: float = PRICE_PER_HOUR
    rival_target: float = TARGET
    seed: int = 1


class Contest(msgspec.Struct, frozen=True, kw_only=True):
    """The scores by policy. `hours_to_clairvoyant` is our pod hours over the least possible.

    `violations_to_best_rival` is our seconds of violation less those of the rival with the fewest.
    """

    trace: str
    text: str
    seconds: int
    peak_rate: float
    model: str
    hardware: str
    slo_ms: float
    pod_rate: float
    cold_start_median_s: float
    cold_start_p90_s: float
    policies: dict[str, Score]
    hours_to_clairvoyant: float
    violations_to_best_rival: int
    took_s: float


def contest(
    trace: Trace, profile: Profile, names: tuple[str, str], setting: Setting, tell: Callable[[str], None]
) -> tuple[Contest, dict[str, Timeline]]:
    """Run each policy; `names` are those of the model and the hardware, `tell` is called with what comes next.

    Raises:
        LimitsError: The limits do not allow the fleet that the beginning of the trace needs.
    """
    began = time.monotonic()
    arrivals = trace.arrivals(setting.seed)
    needed = first_size(arrivals, profile)
    if needed > setting.limits.max_pods:
        raise LimitsError(
            "max_pods", setting.limits.max_pods, f"{trace.name} begins with {needed} pods' worth of load"
        )
    timelines: dict[str, Timeline] = {}
    for name, policy in _policies(profile, setting).items():
        tell(f"{trace.name}: {name}")
        timelines[name] = run(arrivals, profile, policy, setting.luck)
    tell(f"{trace.name}: {CLAIRVOYANT}")
    planned = plan(arrivals, profile, setting.limits, setting.luck.mean_cold_start_s)
    timelines[CLAIRVOYANT] = run_plan(arrivals, profile, *planned)
    slo_ms = profile.capacity.slo_ms
    scores = {name: score(timeline, slo_ms, setting.price) for name, timeline in timelines.items()}
    best = min(scores[name].slo_violation_seconds for name in RIVALS)
    found = Contest(
        trace=trace.name,
        text=trace.text,
        seconds=len(trace.rates),
        peak_rate=round(float(trace.rates.max()), 1),
        model=names[0],
        hardware=names[1],
        slo_ms=slo_ms,
        pod_rate=round(profile.capacity.rate, 2),
        cold_start_median_s=setting.luck.cold_start_median_s,
        cold_start_p90_s=setting.luck.cold_start_p90_s,
        policies=scores,
        hours_to_clairvoyant=round(scores[OURS].pod_hours / max(1e-9, scores[CLAIRVOYANT].pod_hours), 4),
        violations_to_best_rival=scores[OURS].slo_violation_seconds - best,
        took_s=round(time.monotonic() - began, 1),
    )
    return found, timelines


def _policies(profile: Profile, setting: Setting) -> dict[str, Policy]:
    rules = Rules(cold_start_s=setting.luck.cold_start_p90_s)
    ours = Copydesk(autoscaler.Policy(profile.capacity, setting.limits, rules))
    target = setting.rival_target * profile.capacity.concurrency
    return {OURS: ours, **{name: rival(target, setting.limits) for name, rival in RIVALS.items()}}
