"""One model in the hands of the autoscaler: what it observes, its state, its decisions, and its candidate. No I/O.

Whoever does not lead decides all the same, for itself: its windows, seasons and targets are then as warm as the
leader's when its turn comes. A new term begins by the size that there is, and may not shrink for a while.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec

from copydesk.autoscaler.decide import Policy, decide
from copydesk.autoscaler.decision import Decision
from copydesk.autoscaler.log_entry import LIVE, Entry, Virtual, entry_of
from copydesk.autoscaler.observation import Observation
from copydesk.autoscaler.observer import Observer, Outcome
from copydesk.autoscaler.plan import Configuration, Plan
from copydesk.autoscaler.state import State
from copydesk.autoscaler.state_file import restored
from copydesk.autoscaler.virtual_fleet import VirtualFleet, real_work, shown


@dataclass(frozen=True, slots=True)
class Turn:
    """What came of one turn: the decision, and the lines of it and of the candidate's."""

    decision: Decision
    live: Entry
    shadow: Entry | None = None
    shadow_decision: Decision | None = None


class Pilot:
    """Decides for the model of `plan`; `name` is that of its decisions."""

    def __init__(self, plan: Plan, name: str = LIVE) -> None:
        self.plan = plan
        self.name = name
        self.observer = Observer(plan.model, plan.live.rules.cold_start_s)
        self.state = State()
        self._shadow = _Shadow(plan.candidate, plan.live) if plan.candidate is not None else None
        self._term: int | None = None
        self._sequence = 0

    def policy(self, now: float) -> Policy | None:
        """Return the live policy, None while the capacity of a pod is not known."""
        return self.plan.live.policy(self.observer.pods.slots(now))

    def restore(self, saved: State) -> None:
        """Go on from what was learned before a restart, the candidate as well as the live configuration."""
        self.state = restored(self.state, saved)
        if self._shadow is not None:
            self._shadow.restore(saved)

    @property
    def term(self) -> int | None:
        """The epoch under which this one leads, None while it stands by."""
        return self._term

    def turn(self, size: int, now: float, term: int | None) -> Turn | None:
        """Decide at `now`, where `size` pods are asked for, as the leader of `term` (None: standing by).

        None: nothing can be decided, since nobody has said yet what a pod can do.
        """
        self._enter(term)
        policy = self.policy(now)
        outcome = self.observer.outcome(now)
        if policy is None:
            return None
        seen = self.observer.observe(size, now)
        self.state = _watchful(self.state, policy, now)
        decision, self.state = decide(policy, self.state, seen, now)
        self._sequence += 1
        live = self._entry(decision, self.name, policy, outcome, now)
        if self._shadow is None:
            return Turn(decision, live)
        made = self._shadow.turn(seen, self.state, self.observer.pods.slots(now), now)
        if made is None:
            return Turn(decision, live)
        entry = self._entry(made.decision, self._shadow.name, made.policy, outcome, now)
        return Turn(decision, live, msgspec.structs.replace(entry, virtual=made.virtual), made.decision)

    def _entry(self, decision: Decision, name: str, policy: Policy, outcome: Outcome, now: float) -> Entry:
        entry = entry_of(
            decision,
            time=now,
            model=self.plan.model,
            epoch=self._term or 0,
            sequence=self._sequence,
            policy=name,
            slo_ms=policy.capacity.slo_ms,
        )
        return msgspec.structs.replace(entry, observed=outcome)

    def _enter(self, term: int | None) -> None:
        """Begin a term, if it is a new one: by the size that there is, whatever this one would have made it."""
        if term == self._term:
            return
        self._term, self._sequence = term, 0
        if term is not None:
            self.state = replace(self.state, leader_since=None, sizes=())


def _watchful(state: State, policy: Policy, now: float) -> State:
    """Let whoever has heard nothing for long see for a while before it shrinks anything, as a new leader does.

    What is heard first after an outage is not all: gateways come back one by one, and peaks are forgotten by then.
    """
    rules = policy.rules
    if state.heard_at is not None and now - state.heard_at > min(rules.silent_s, rules.memory_s):
        return replace(state, leader_since=None)
    return state


@dataclass(frozen=True, slots=True)
class _Made:
    """A candidate's decision, by which policy, for which fleet."""

    decision: Decision
    policy: Policy
    virtual: Virtual


class _Shadow:
    """A candidate beside the live configuration; it begins with the fleet that there is."""

    def __init__(self, configuration: Configuration, live: Configuration) -> None:
        self.name = configuration.name
        self._configuration = configuration
        self._own_pods = configuration.source != live.source
        self._state = State()
        self._fleet: VirtualFleet | None = None

    def restore(self, saved: State) -> None:
        """Learn what was saved, unless it is about other pods than this candidate counts in."""
        if not self._own_pods:
            self._state = restored(self._state, saved)

    def turn(self, seen: Observation, live: State, slots: int | None, now: float) -> _Made | None:
        """Decide for the fleet that there would be; `live` is the live state after its decision."""
        policy = self._configuration.policy(slots)
        if policy is None:
            return None
        fleet = self._fleet or VirtualFleet.like(seen.size)
        work = real_work(policy, seen, live.service_s, now)
        virtual = Virtual(ready=fleet.ready(policy.rules.cold_start_s, now), work=work)
        state = self._state if self._own_pods else replace(self._state, refinement=live.refinement)
        state = _watchful(state, policy, now)
        decision, self._state = decide(policy, state, shown(policy, fleet, seen, work, now), now)
        self._fleet = fleet.resized(decision.replicas, now)
        return _Made(decision, policy, virtual)
