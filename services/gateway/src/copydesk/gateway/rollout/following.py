"""Which plan a gateway follows, and what that means for its requests."""

from __future__ import annotations

from dataclasses import dataclass

from copydesk.common.messages import RolloutPlan, RolloutStage
from copydesk.routing import Held, Split, Verdict, hear, judge

WATCHED = (RolloutStage.SHADOW, RolloutStage.SHARE)
"""The stages in which somebody has to watch."""


@dataclass(frozen=True, slots=True)
class Course:
    """What holds: pods of the weights `withheld` get no ordinary work; `split` is None where all work is ordinary.

    `in_force` is false once a plan that needs watching has expired.
    """

    plan: RolloutPlan
    withheld: str
    split: Split | None
    in_force: bool


class Following:
    """Keeps the newest plan for a model; `now` is in seconds of one monotonic clock."""

    def __init__(self, model: str) -> None:
        self.plan: RolloutPlan | None = None
        self._model = model
        self._held: Held | None = None
        self._heard_at = 0.0

    def hear(self, plan: RolloutPlan, now: float) -> bool:
        """Take over a plan, unless it is late, for another model, or of two versions that are one.

        A lower epoch is believed once the present one has been silent for ten seconds, as for snapshots.
        """
        if plan.model != self._model or not plan.candidate or plan.baseline == plan.candidate:
            return False
        verdict = judge(self._held, plan.epoch, plan.sequence, now)
        self._held = hear(self._held, plan.epoch, plan.sequence, now)
        if verdict is not Verdict.APPLY:
            return False
        self.plan, self._heard_at = plan, now
        return True

    def course(self, now: float) -> Course | None:
        """Return what holds now; None where no plan was ever heard."""
        plan = self.plan
        if plan is None:
            return None
        if plan.stage is RolloutStage.FINISHED:
            return Course(plan, plan.baseline, None, True)
        if plan.stage not in WATCHED:
            return Course(plan, plan.candidate, None, True)
        if now - self._heard_at > plan.expires_after_s:
            return Course(plan, plan.candidate, None, False)
        share = plan.share if plan.stage is RolloutStage.SHARE else 0.0
        share, copied = _bounded(share), _bounded(plan.shadow_share)
        split = Split.of(plan.rollout, share, copied) if share or copied else None
        return Course(plan, plan.candidate, split, True)


def _bounded(share: float) -> float:
    return min(1.0, max(0.0, share))
