"""The rollout itself, without network or clock: what is decided from what is heard, and the plan that says so."""

from __future__ import annotations

from dataclasses import dataclass

from copydesk.cli.rollout.gathered import Gathered
from copydesk.cli.rollout.roster import Versions
from copydesk.common.messages import RolloutPlan, RolloutReport, RolloutStage
from copydesk.routing import Decision, Evidence, Policy, Stage, State, decide


@dataclass(frozen=True, slots=True)
class Terms:
    """What is fixed for a rollout: rules, objective, how many requests are copied, when plans expire."""

    policy: Policy
    slo_ms: float
    shadow_share: float
    expires_after_s: float


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where to begin: the first stage of a new rollout, or where another controller has left one."""

    rollout: str
    epoch: int
    stage: Stage = Stage.SHADOW
    step: int = 0

    @classmethod
    def resumed(cls, heard: RolloutPlan | RolloutReport, shares: tuple[float, ...], epoch: int) -> Beginning:
        """Go on from what a controller or a gateway says; it takes an epoch above the one before."""
        stage = Stage.SHARE if heard.stage is RolloutStage.SHARE else Stage.SHADOW
        step = next((i for i, share in enumerate(shares) if share >= heard.share), len(shares) - 1)
        return cls(heard.rollout, max(epoch, heard.epoch + 1), stage, step if stage is Stage.SHARE else 0)


class Conductor:
    """Decides once a second, and words the plan; `now` is monotonic, `wall` in Unix seconds."""

    def __init__(self, versions: Versions, terms: Terms, begin: Beginning, *, now: float, wall: float) -> None:
        self.versions = versions
        self.terms = terms
        self.gathered = Gathered(begin.rollout, begin.epoch, began=wall)
        self.begin = begin
        self.evidence = Evidence()
        self.decision = Decision(State(begin.stage, now, begin.step), "it begins")
        self._sequence = 0

    @property
    def stage(self) -> Stage:
        """How far it is."""
        return self.decision.state.stage

    @property
    def share(self) -> float:
        """What the candidate answers."""
        return self.decision.share(self.terms.policy)

    def tick(self, *, baselines: int, candidates: int, now: float) -> bool:
        """Decide; say whether the stage or the share has changed."""
        self.evidence = self.gathered.evidence(
            self.terms.slo_ms, baselines=baselines, candidates=candidates, now=now
        )
        before = self.decision.state
        self.decision = decide(before, self.evidence, self.terms.policy, now)
        after = self.decision.state
        return (before.stage, before.step) != (after.stage, after.step)

    def roll_back(self, why: str, now: float) -> None:
        """Go back, whatever was counted."""
        self.decision = Decision(State(Stage.ROLLED_BACK, now), why)

    def plan(self, wall: float) -> RolloutPlan:
        """Return the next message."""
        self._sequence += 1
        stage = RolloutStage(self.stage.value)
        return RolloutPlan(
            model=self.versions.model,
            rollout=self.begin.rollout,
            epoch=self.begin.epoch,
            sequence=self._sequence,
            sent_at=wall,
            stage=stage,
            baseline=self.versions.baseline,
            candidate=self.versions.candidate,
            share=self.share,
            shadow_share=0.0 if self.stage.over else self.terms.shadow_share,
            expires_after_s=self.terms.expires_after_s,
        )
