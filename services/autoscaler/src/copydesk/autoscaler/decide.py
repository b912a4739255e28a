"""How many pods: one pure function, called every two seconds by the live service, the shadow and the simulator.

Growing is quick and shrinking is slow, since a pod too few costs every user's patience and a pod too many a few
cents. What is not known never makes the fleet smaller.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from copydesk.autoscaler import demand as demands
from copydesk.autoscaler import window
from copydesk.autoscaler.capacity import Capacity
from copydesk.autoscaler.decision import Decision, Inputs, Rule
from copydesk.autoscaler.demand import Demand
from copydesk.autoscaler.disproof import Evidence, disprove
from copydesk.autoscaler.forecast import forecast, observe
from copydesk.autoscaler.limits import Limits
from copydesk.autoscaler.observation import Observation
from copydesk.autoscaler.pods import Census, count
from copydesk.autoscaler.reason import explain
from copydesk.autoscaler.refinement import Refinement, refine
from copydesk.autoscaler.rules import Rules
from copydesk.autoscaler.state import State
from copydesk.autoscaler.target import DAY_MINUTES, share, steepest


@dataclass(frozen=True, slots=True)
class Policy:
    """What stays the same from decision to decision: what a pod can do, the limits, the rules."""

    capacity: Capacity
    limits: Limits
    rules: Rules = field(default_factory=Rules)


def decide(policy: Policy, state: State, observation: Observation, now: float) -> tuple[Decision, State]:
    """Return how many pods there shall be at `now` (seconds on a steady clock), and the state for the next time.

    Total: whatever the numbers in the observation, NaN and infinities among them, a size within the limits comes
    out. A `now` that is not one, or before the last, counts as the last.
    """
    now = _sane(now, state.last_at)
    rules = policy.rules
    census = count(observation.pods, rules.cold_start_s, rules.stuck_after, now)
    found = _measure(policy, state, observation, census, now)
    size = max(0, observation.size)
    state = _remember(policy, state, found, size, now)
    inputs = _inputs(policy, state, found, census, size, now)
    state = _learn(policy, state, found, census, inputs, now)
    replicas, called = _choose(policy, state, inputs, observation.members_stale, now)
    limited = policy.limits.clamp(replicas)
    rule = called if limited == replicas else Rule.LIMIT
    if _panics(policy, inputs):
        state = replace(state, panic_until=now + rules.panic_s)
    state = replace(state, sizes=_sizes(state.sizes, limited, rules, now))
    return Decision(limited, rule, explain(rule, called, inputs, limited, policy), inputs, census.stuck), state


def _sane(now: float, last: float | None) -> float:
    if not math.isfinite(now):
        return 0.0 if last is None else last
    return now if last is None else max(now, last)


def _measure(policy: Policy, state: State, observation: Observation, census: Census, now: float) -> Demand:
    """Measure demand; in pods as they were assumed, of which each is full with what is left of that."""
    factor = 1.0 if policy.capacity.measured else state.refinement.factor
    capacity = policy.capacity if factor == 1.0 else policy.capacity.lessened(factor)
    found = demands.measure(observation.gateways, census, capacity, policy.rules, state.service_s, now)
    return found if factor == 1.0 else replace(found, work=found.work * factor)


def _remember(policy: Policy, state: State, found: Demand, size: int, now: float) -> State:
    """Take in what was seen; what has grown old is forgotten."""
    samples = tuple(sample for sample in state.demand if sample[0] > now - 60.0)
    if found.heard:
        samples = (*(one for one in samples if one[0] < now), (now, found.work))
    return replace(
        state,
        leader_since=now if state.leader_since is None else state.leader_since,
        last_at=now,
        heard_at=now if found.heard else state.heard_at,
        service_s=found.service_s or state.service_s,
        demand=samples,
        sizes=state.sizes or ((now, size),),
    )


def _inputs(policy: Policy, state: State, found: Demand, census: Census, size: int, now: float) -> Inputs:
    rules, capacity = policy.rules, policy.capacity
    part = share(capacity, rules, state.ramp or rules.unseen_ramp, state.refinement.factor)
    d6, d20, d60 = (window.mean(state.demand, seconds, now) for seconds in (6.0, 20.0, 60.0))
    rise = window.slope(state.demand, now)
    wanted = _pods(d20 + rise * rules.lead_s, part)
    silent_since = state.heard_at if state.heard_at is not None else state.leader_since
    lead = math.ceil(rules.cold_start_s)
    promised = forecast(state.season, lead, lead + rules.forecast_lead_s, now)
    error = state.season.error
    trusted = promised is not None and error is not None and error < rules.forecast_error
    return Inputs(
        size=size,
        concurrency=found.concurrency,
        demand=found.work,
        demand_6=d6,
        urgent=max(d6, found.work if found.refused and found.heard else window.lately(state.demand)),
        demand_20=d20,
        demand_60=d60,
        slope=rise,
        share=part,
        target=capacity.concurrency_at(part),
        refinement=state.refinement.factor,
        ready=census.ready,
        pending=census.pending,
        stuck=len(census.stuck),
        effective=census.effective,
        wanted=wanted,
        peak=max([wanted, *(pods for at, pods in state.wanted if at > now - rules.memory_s)]),
        forecast=_pods(promised, part) if trusted and promised is not None else None,
        forecast_error=error,
        stale_gateways=found.stale,
        silent_s=now - silent_since if silent_since is not None else 0.0,
    )


def _learn(policy: Policy, state: State, found: Demand, census: Census, inputs: Inputs, now: float) -> State:
    """Take in what lasts: peaks, ramps, the season, and whether the target holds."""
    rules = policy.rules
    # Only what nothing since has reached can be the peak: a few entries, not five minutes of them.
    wanted = tuple(one for one in state.wanted if now - rules.memory_s < one[0] < now and one[1] > inputs.wanted)
    ahead = max(1, math.ceil((rules.cold_start_s + rules.forecast_lead_s) / 60.0))
    known = found.heard and not found.stale
    return _ramps(
        replace(
            state,
            wanted=(*wanted, (now, inputs.wanted)),
            season=observe(state.season, found.work if known else None, now, ahead),
            refinement=_corrected(policy.capacity, state.refinement, found, census.ready, inputs.share, now),
        ),
        inputs.demand_6,
        rules.unseen_ramp,
        now,
    )


def _corrected(
    capacity: Capacity, before: Refinement, found: Demand, ready: int, share_: float, now: float
) -> Refinement:
    """Correct what was certified slowly, and what was assumed quickly."""
    known, troubled = found.heard and not found.stale, found.waiting or found.refused
    load = found.work / (ready * share_) if ready else math.inf
    if capacity.measured:
        clean = known and not troubled and ready > 0
        return refine(before, load=load, p99_ms=found.p99_ms, slo_ms=capacity.slo_ms, clean=clean, now=now)
    done = found.done / (ready * capacity.rate * share_) if ready and found.done is not None else None
    seen = Evidence(load, done, found.p99_ms, capacity.slo_ms, troubled, known, ready)
    return disprove(before, seen, min(1.0, 1.0 / capacity.concurrency), now)


def _ramps(state: State, demand: float, prior: float, now: float) -> State:
    """Once a minute, note how steeply demand rose; a minute with a hole in it says nothing."""
    if state.ramp_at is not None and now - state.ramp_at < 60.0:
        return state
    if state.ramp_at is None or now - state.ramp_at > 90.0 or state.ramp_base < 1.0:
        return replace(state, ramp_at=now, ramp_base=demand)
    rise = max(0.0, demand / state.ramp_base - 1.0) / (now - state.ramp_at)
    ramps = (*state.ramps, rise)[-DAY_MINUTES:]
    return replace(state, ramp_at=now, ramp_base=demand, ramps=ramps, ramp=steepest(ramps, prior))


def _choose(policy: Policy, state: State, inputs: Inputs, members_stale: bool, now: float) -> tuple[int, Rule]:
    size = inputs.size
    if inputs.silent_s >= policy.rules.silent_s or not state.demand:
        return size, Rule.HOLD_SILENT
    wanted, rule = _wanted(policy, inputs)
    if wanted > size:
        allowed = _growth(policy, state, inputs, now)
        return min(wanted, max(size, allowed)), rule
    return _shrink(policy, state, inputs, members_stale, wanted, now)


def _wanted(policy: Policy, inputs: Inputs) -> tuple[int, Rule]:
    """Return what is called for, and the rule that calls for most of it."""
    calls = [(inputs.wanted, Rule.UP)]
    if _panics(policy, inputs):
        calls.append((_pods(policy.rules.panic_margin * inputs.urgent, inputs.share), Rule.PANIC))
    if inputs.forecast is not None:
        calls.append((inputs.forecast, Rule.FORECAST))
    wanted, rule = max(calls, key=lambda call: call[0])
    if inputs.stuck:
        return _replacing(policy, inputs, wanted), Rule.STUCK if wanted <= inputs.size else rule
    return wanted, rule


def _replacing(policy: Policy, inputs: Inputs, wanted: int) -> int:
    """Return how many pods to ask for where so many shall work and some are stuck."""
    if not inputs.stuck:
        return wanted
    return wanted + min(inputs.stuck, max(1, math.floor(policy.rules.stuck_share * wanted)))


def _panics(policy: Policy, inputs: Inputs) -> bool:
    # Not in whole pods: of a fleet of one or two, each that is added would be half as much again.
    short = inputs.urgent / inputs.share >= policy.rules.panic_ratio * inputs.effective
    return short and _pods(inputs.urgent, inputs.share) > inputs.ready


def _growth(policy: Policy, state: State, inputs: Inputs, now: float) -> int:
    rules = policy.rules
    before = [size for at, size in state.sizes if at <= now - rules.growth_s]
    start = before[-1] if before else state.sizes[0][1]
    start = min([start, inputs.size, *(size for at, size in state.sizes if at > now - rules.growth_s)])
    panic = _panics(policy, inputs) or (state.panic_until is not None and now < state.panic_until)
    ratio = rules.panic_growth_ratio if panic else rules.growth_ratio
    return max(start + rules.growth_pods, math.floor(ratio * start))


def _shrink(
    policy: Policy, state: State, inputs: Inputs, members_stale: bool, wanted: int, now: float
) -> tuple[int, Rule]:
    rules, size = policy.rules, inputs.size
    hold = _hold(policy, state, inputs, members_stale, now)
    if hold is not None:
        return size, hold
    floor = max(wanted, _replacing(policy, inputs, inputs.peak))
    if floor >= size:
        return size, Rule.STEADY if wanted >= size else Rule.HOLD_RECENT
    if state.panic_until is not None and now < state.panic_until:
        return _withdraw(inputs, floor)
    guarded = math.ceil(inputs.demand_60 / (rules.guard * inputs.share) - _EPSILON)
    if guarded >= size:
        return size, Rule.HOLD_GUARD
    most = max([size, *(one for _, one in state.sizes)])  # the first was in force when the minute began
    paced = most - max(1, math.floor(rules.shrink_share * most))
    if paced >= size:
        return size, Rule.HOLD_PACE
    smaller = max(floor, guarded, paced)
    if size - smaller < rules.slack * size:
        return size, Rule.HOLD_SLACK
    return smaller, Rule.DOWN


def _hold(policy: Policy, state: State, inputs: Inputs, members_stale: bool, now: float) -> Rule | None:
    """Return why the fleet may not shrink now, if it may not."""
    rules = policy.rules
    if inputs.stale_gateways or members_stale or inputs.silent_s > 0.0:
        return Rule.HOLD_STALE
    if state.leader_since is None or now - state.leader_since < rules.new_leader_s:
        return Rule.HOLD_NEW
    return None


def _withdraw(inputs: Inputs, floor: int) -> tuple[int, Rule]:
    """Return what is kept of a panic's orders: once more pods work than are needed, some that start are spare.

    As many as there are beyond need: enough remain even where those that work are taken first, as a StatefulSet
    may do, which removes the highest numbers.
    """
    needed = max(floor, _pods(inputs.urgent, inputs.share))
    spare = min(inputs.size - inputs.ready, inputs.ready - needed)
    if spare > 0:
        return inputs.size - spare, Rule.WITHDRAW
    return inputs.size, Rule.HOLD_RECENT


def _sizes(
    sizes: tuple[tuple[float, int], ...], size: int, rules: Rules, now: float
) -> tuple[tuple[float, int], ...]:
    """Return the changes of size of the last minute, and the one in force before it."""
    if sizes and sizes[-1][1] != size:
        sizes = (*sizes, (now, size))
    old = [one for one in sizes if one[0] <= now - rules.shrink_s]
    return (*old[-1:], *(one for one in sizes if one[0] > now - rules.shrink_s))


def _pods(work: float, part: float) -> int:
    return math.ceil(min(demands.ABSURD, work) / part - _EPSILON)


_EPSILON = 1e-9
