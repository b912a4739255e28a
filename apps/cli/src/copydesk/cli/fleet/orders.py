"""What the autoscaler has ordered last, and which of its messages are none to act on."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from copydesk.cli.fleet.scaling import Limits
from copydesk.common.messages import ScaleDecision

MAX_AGE_S = 10.0
"""Decisions come every two seconds. One this old was held up on its way, and demand has moved on."""
LIVE = "live"
LARGEST = 2**53
"""Epochs are Unix milliseconds. After one of another order no leader could ever be heard again."""


class Refusal(enum.StrEnum):
    """Why a decision is not acted on, in words."""

    MODEL = "it is for another model"
    POLICY = "it is a candidate's, not the live policy's"
    SIZE = "no fleet can have that size"
    NUMBERS = "its epoch and sequence are no numbers of a leader"
    AGE = "it was not sent just now"
    EPOCH = "a newer leader has decided since"
    SEQUENCE = "a newer decision of this leader is known"


@dataclass(frozen=True, slots=True)
class Target:
    """The size that the fleet works towards, by the decision of `epoch` and `sequence` (0: by none yet).

    `reason` is that of the last decision that changed the size, `rule` what settled it.
    """

    replicas: int
    epoch: int = 0
    sequence: int = 0
    reason: str = ""
    rule: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """A decision that was taken: the size before, and what it is now; they may be the same."""

    before: int
    target: Target


class Orders:
    """Keeps the newest decision for `model`; `taken` counts those that were not refused."""

    def __init__(self, model: str, limits: Limits, size: int) -> None:
        self.model = model
        self.limits = limits
        self.target = Target(limits.clamp(size))
        self.taken = 0

    def hear(self, decision: ScaleDecision, now: float) -> Change | Refusal:
        """Take a decision at `now` (Unix seconds), clamped to the limits, or say why not."""
        refusal = self._refusal(decision, now)
        if refusal is not None:
            return refusal
        before = self.target
        self.taken += 1
        self.target = replace(before, epoch=decision.epoch, sequence=decision.sequence)
        size = self.limits.clamp(decision.replicas)
        if size != before.replicas:
            self.target = replace(self.target, replicas=size, reason=decision.reason, rule=decision.rule)
        return Change(before.replicas, self.target)

    def _refusal(self, decision: ScaleDecision, now: float) -> Refusal | None:
        if decision.model != self.model:
            return Refusal.MODEL
        if decision.policy != LIVE:
            return Refusal.POLICY
        if decision.replicas < 1:
            return Refusal.SIZE
        if not (0 <= decision.epoch < LARGEST and 0 <= decision.sequence < LARGEST):
            return Refusal.NUMBERS
        if not abs(now - decision.sent_at) <= MAX_AGE_S:
            return Refusal.AGE
        if decision.epoch < self.target.epoch:
            return Refusal.EPOCH
        if (decision.epoch, decision.sequence) <= (self.target.epoch, self.target.sequence):
            return Refusal.SEQUENCE
        return None
