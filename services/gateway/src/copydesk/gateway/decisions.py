"""What the autoscaler said, for people: of a decision every two seconds those that are worth reading."""

from __future__ import annotations

from collections import deque

from copydesk.common.messages import ScaleDecision
from copydesk.gateway.schemas import ScaleDecisionBody

KEPT_DECISIONS = 50
REASON_CHARACTERS = 300

NOTABLE = frozenset({"panic", "stuck", "limit", "hold_stale", "hold_silent"})
"""Rules that somebody should see though the size stays: there is more demand than pods, or not all is known."""


class Decisions:
    """The last decisions that changed the size, and at each size the first by each of the `NOTABLE` rules.

    So two rules that take turns say nothing new, and what is kept is bounded, as is each reason.
    """

    def __init__(self) -> None:
        self._kept: deque[ScaleDecisionBody] = deque(maxlen=KEPT_DECISIONS)
        self._newest = (0, 0)
        self._size: int | None = None
        self._told: set[str] = set()

    def hear(self, decision: ScaleDecision) -> bool:
        """Take in a decision; say whether it counts: a repeated one, or one of a replaced autoscaler, does not.

        Those without epoch and sequence are taken as they come.
        """
        version = (decision.epoch, decision.sequence)
        if version != (0, 0) and version <= self._newest:
            return False
        self._newest = max(version, self._newest)
        if decision.replicas != self._size:
            self._size = decision.replicas
            self._told.clear()
        elif decision.rule not in NOTABLE or decision.rule in self._told:
            return True
        self._told.add(decision.rule)
        reason = decision.reason[:REASON_CHARACTERS]
        self._kept.append(ScaleDecisionBody(int(decision.sent_at * 1000), decision.replicas, reason))
        return True

    def list(self) -> list[ScaleDecisionBody]:
        """Return what is kept, the oldest first."""
        return list(self._kept)
