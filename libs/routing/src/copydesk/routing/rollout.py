"""How far a rollout may go: a pure function of what was counted, the rules, and the time.

It advances on evidence alone, holds where evidence is missing, and goes back as soon as the candidate is worse by
more than a margin, surely. That is asked every second, and so the interval is a wide one (`Policy.confidence`):
some look would take chance for a fact else.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace

from copydesk.routing.proportion import Interval, difference, wilson


class Stage(enum.StrEnum):
    """Copies only; a share of the requests; over, one way or the other."""

    SHADOW = "shadow"
    SHARE = "share"
    FINISHED = "finished"
    ROLLED_BACK = "rolled_back"

    @property
    def over(self) -> bool:
        """Whether nothing more will be decided."""
        return self in (Stage.FINISHED, Stage.ROLLED_BACK)


@dataclass(frozen=True, slots=True)
class Service:
    """What became of the requests to one version: answered, of these `slow` ones, failed, without room."""

    requests: int = 0
    slow: int = 0
    failures: int = 0
    refused: int = 0

    def since(self, mark: Service) -> Service:
        """Return what has come since `mark`."""
        return Service(
            self.requests - mark.requests,
            self.slow - mark.slow,
            self.failures - mark.failures,
            self.refused - mark.refused,
        )


@dataclass(frozen=True, slots=True)
class Agreement:
    """Of the copies: how many were compared and the same, and how many brought no answer."""

    compared: int = 0
    same: int = 0
    failed: int = 0

    def since(self, mark: Agreement) -> Agreement:
        """Return what has come since `mark`."""
        return Agreement(self.compared - mark.compared, self.same - mark.same, self.failed - mark.failed)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything since the rollout began.

    `gateways` have reported lately, those in `silent` have stopped; `candidates` and `baselines` are the pods that
    can take work. `unheeded` are gateways that follow another plan.
    """

    baseline: Service = field(default_factory=Service)
    candidate: Service = field(default_factory=Service)
    agreement: Agreement = field(default_factory=Agreement)
    gateways: int = 0
    silent: tuple[str, ...] = ()
    unheeded: tuple[str, ...] = ()
    candidates: int = 1
    baselines: int = 1


@dataclass(frozen=True, slots=True)
class Policy:
    """What a candidate has to show. Shares and margins are of 1, times in seconds.

    `sentences` must have been compared, and `agreement` be passed by the lower bound, before clients get its
    answers. Each of the `shares` takes at least `seconds` and `requests`. More failures than the baseline's by
    `failure_margin`, or more slow answers by `slow_margin`, are a regression, if `confidence` standard deviations
    say so and at least `least` were counted. `refused` is the share without room above which it is not given more.
    A stage that takes longer than `patience` is given up; 0 waits for ever.
    """

    sentences: int = 500
    agreement: float = 0.85
    shares: tuple[float, ...] = (0.01, 0.05, 0.25, 0.5, 1.0)
    seconds: float = 60.0
    requests: int = 100
    failure_margin: float = 0.01
    slow_margin: float = 0.05
    least: int = 5
    refused: float = 0.1
    confidence: float = 2.58
    patience: float = 0.0


@dataclass(frozen=True, slots=True)
class State:
    """Where a rollout is: its stage, which of the shares, since when, and what had been counted by then."""

    stage: Stage
    since: float
    step: int = 0
    mark: Evidence = field(default_factory=Evidence)


@dataclass(frozen=True, slots=True)
class Decision:
    """Where it goes from here, why in words, and what it still waits for."""

    state: State
    why: str
    missing: tuple[str, ...] = ()

    def share(self, policy: Policy) -> float:
        """Return the share of requests that the candidate answers."""
        match self.state.stage:
            case Stage.SHARE:
                return policy.shares[self.state.step]
            case Stage.FINISHED:
                return 1.0
        return 0.0


def decide(state: State, evidence: Evidence, policy: Policy, now: float) -> Decision:
    """Decide where the rollout stands now; one that is over stays as it is."""
    if state.stage.over:
        return Decision(state, "the rollout is over")
    worse = regression(state, evidence, policy)
    if worse is not None:
        return Decision(replace(state, stage=Stage.ROLLED_BACK, since=now), worse)
    missing = (*_unheard(evidence), *_short(state, evidence, policy, now))
    if not missing:
        return _advance(state, evidence, policy, now)
    if policy.patience and now - state.since >= policy.patience:
        why = f"after {policy.patience:g} s there still is missing: {', '.join(missing)}"
        return Decision(replace(state, stage=Stage.ROLLED_BACK, since=now), why, missing)
    return Decision(state, f"waiting for {', '.join(missing)}", missing)


def regression(state: State, evidence: Evidence, policy: Policy) -> str | None:
    """Say in which way the candidate is surely worse than it may be; None if it is not."""
    for window in (evidence.agreement, evidence.agreement.since(state.mark.agreement)):
        worse = _disagrees(window, policy)
        if worse is not None:
            return worse
    baseline, candidate = _windows(state, evidence, policy)
    return _fails_more(baseline, candidate, policy) or _slower(baseline, candidate, policy)


def _windows(state: State, evidence: Evidence, policy: Policy) -> tuple[Service, Service]:
    """Return what both did in this stage; of a baseline that has too little to do by now, what it did before."""
    baseline = evidence.baseline.since(state.mark.baseline)
    if baseline.requests < policy.requests:
        baseline = evidence.baseline
    return baseline, evidence.candidate.since(state.mark.candidate)


def _disagrees(window: Agreement, policy: Policy) -> str | None:
    if window.compared - window.same >= policy.least:
        found = wilson(window.same, window.compared, policy.confidence)
        if found.high < policy.agreement:
            share = window.same / window.compared
            return (
                f"only {share:.1%} of {window.compared} sentences came back the same (surely no more than "
                f"{found.high:.1%}), and {policy.agreement:.0%} are needed"
            )
    asked = window.compared + window.failed
    if (
        window.failed >= policy.least
        and wilson(window.failed, asked, policy.confidence).low > policy.failure_margin
    ):
        return f"{window.failed} of {asked} copies brought no answer"
    return None


def _fails_more(baseline: Service, candidate: Service, policy: Policy) -> str | None:
    ended, other = candidate.requests + candidate.failures, baseline.requests + baseline.failures
    more = difference(candidate.failures, ended, baseline.failures, other, policy.confidence)
    return _worse(
        "failed", candidate.failures, ended, baseline.failures, other, more, policy.failure_margin, policy
    )


def _slower(baseline: Service, candidate: Service, policy: Policy) -> str | None:
    more = difference(candidate.slow, candidate.requests, baseline.slow, baseline.requests, policy.confidence)
    return _worse(
        "were too slow",
        candidate.slow,
        candidate.requests,
        baseline.slow,
        baseline.requests,
        more,
        policy.slow_margin,
        policy,
    )


def _worse(
    what: str, hits: int, number: int, other_hits: int, other: int, more: Interval, margin: float, policy: Policy
) -> str | None:
    if hits < policy.least:
        return None
    if other == 0:  # nothing to compare with: then the margin itself is the bound
        more = wilson(hits, number, policy.confidence)
    if more.low <= margin:
        return None
    beside = f"{other_hits / other:.1%} of the baseline's" if other else "none of the baseline's to compare with"
    return f"{hits / number:.1%} of the candidate's {number} requests {what}, {beside}"


def _unheard(evidence: Evidence) -> list[str]:
    missing = []
    if evidence.gateways == 0:
        missing.append("the report of a gateway")
    missing += [f"the report of gateway {name}" for name in evidence.silent]
    missing += [f"gateway {name} to follow" for name in evidence.unheeded]
    if evidence.candidates == 0:
        missing.append("a ready pod of the candidate")
    return missing


def _short(state: State, evidence: Evidence, policy: Policy, now: float) -> list[str]:
    if state.stage is Stage.SHADOW:
        return _too_few_compared(evidence.agreement, policy)
    return _too_little_served(state, evidence, policy, now)


def _too_few_compared(found: Agreement, policy: Policy) -> list[str]:
    if found.compared < policy.sentences:
        return [f"{policy.sentences - found.compared} compared sentences more"]
    low = wilson(found.same, found.compared, policy.confidence).low
    if low < policy.agreement:
        return [f"agreement of {policy.agreement:.0%} for sure (at least {low:.1%} now); more sentences tell"]
    return []


def _too_little_served(state: State, evidence: Evidence, policy: Policy, now: float) -> list[str]:
    baseline, candidate = _windows(state, evidence, policy)
    missing = []
    if candidate.requests < policy.requests:
        missing.append(f"{policy.requests - candidate.requests} requests more to the candidate")
    left = policy.seconds - (now - state.since)
    if left > 0:
        missing.append(f"{left:.0f} s more")
    if candidate.requests and candidate.refused > policy.refused * (candidate.requests + candidate.refused):
        missing.append(f"room: {candidate.refused} requests found none at the candidate's pods")
    if not missing:
        missing += _in_doubt(baseline, candidate, policy)
    return missing


def _in_doubt(baseline: Service, candidate: Service, policy: Policy) -> list[str]:
    """Name what is worse than it may be as counted, if not surely."""
    doubts = []
    if _rate(candidate.failures, candidate.requests) > _rate(baseline.failures, baseline.requests) + (
        policy.failure_margin
    ):
        doubts.append("fewer failures, or certainty of them")
    if _rate(candidate.slow, candidate.requests) > _rate(baseline.slow, baseline.requests) + policy.slow_margin:
        doubts.append("faster answers, or certainty that they are slow")
    return doubts


def _rate(hits: int, others: int) -> float:
    return hits / max(1, others)


def _advance(state: State, evidence: Evidence, policy: Policy, now: float) -> Decision:
    if state.stage is Stage.SHADOW:
        found = evidence.agreement
        why = f"{found.same / max(1, found.compared):.1%} of {found.compared} sentences came back the same"
        return Decision(State(Stage.SHARE, now, 0, evidence), why)
    if state.step + 1 == len(policy.shares):
        return Decision(State(Stage.FINISHED, now, state.step, evidence), "every share went well")
    why = f"{policy.shares[state.step]:.0%} of the requests went well"
    return Decision(State(Stage.SHARE, now, state.step + 1, evidence), why)
