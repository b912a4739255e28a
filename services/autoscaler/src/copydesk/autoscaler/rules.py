"""The constants of the decision, each with its reason. What a site changes are limits and cold start."""

from __future__ import annotations

import math
from dataclasses import dataclass

from copydesk.autoscaler.limits import LimitsError

LARGEST = 86_400.0
"""Of any rule: a day, where it is a time. Beyond lies nothing that anybody means, and numbers that overflow."""
LEAST_SHARE = 0.01
SHARES = ("least_share", "most_share", "shrink_share", "stuck_share", "slack")


@dataclass(frozen=True, slots=True)
class Rules:
    """How `decide` judges; durations in seconds.

    `cold_start_s` is L90, the time in which nine of ten new pods become ready. All else has a default that the
    simulator was used to find.

    Raises:
        LimitsError: A value with which nothing sensible can be decided; it names the key.
    """

    cold_start_s: float = 60.0
    # A target between these shares of C*; with what the curve says of them, shares of R*.
    least_share: float = 0.5
    most_share: float = 0.85
    # Assumed of a day that has not been seen: demand rises by so much of itself in a second, a fifth in a minute,
    # and by no more than a fifth within a cold start: what rises for longer is seen to rise.
    ramp_prior: float = 0.0033
    rise_prior: float = 0.2
    # Beyond the cold start: the time to see, to decide, and to be found by the gateways.
    reaction_s: float = 5.0
    # What is short of this many times what works or will soon is panic: growth is then hardly limited.
    panic_ratio: float = 1.5
    panic_s: float = 60.0
    # In panic, so many times what is needed: then the quickest starts suffice, and nobody waits for the slowest,
    # which are withdrawn.
    panic_margin: float = 2.0
    growth_s: float = 15.0
    growth_pods: int = 4
    growth_ratio: float = 2.0
    panic_growth_ratio: float = 10.0
    # Recommendations that are not undercut.
    memory_s: float = 300.0
    shrink_s: float = 60.0
    shrink_share: float = 0.10
    # What is left may be loaded up to this part of the target; far above 1, nothing is guarded.
    guard: float = 0.97
    # Less than this part of a fleet is not worth the move: noise would have it back in minutes.
    slack: float = 0.03
    # Gateways report each second: two lost reports may happen, three are no chance.
    stale_s: float = 3.0
    silent_s: float = 60.0
    new_leader_s: float = 60.0
    # An unready pod is stuck after so many cold starts; what replaces them is at most that part of the fleet.
    stuck_after: float = 3.0
    stuck_share: float = 0.25
    # A backlog shall be worked off in this time.
    drain_s: float = 3.0
    forecast_lead_s: float = 60.0
    forecast_error: float = 0.20

    def __post_init__(self) -> None:
        for key in self.__slots__:
            value = getattr(self, key)
            most = 1.0 if key in SHARES else LARGEST
            if not (math.isfinite(value) and 0 < value <= most):
                raise LimitsError(key, value, f"expected a finite number above 0, {most:g} at the most")
        if not max(LEAST_SHARE, self.least_share) <= self.most_share:
            least = max(LEAST_SHARE, self.least_share)
            raise LimitsError("most_share", self.most_share, f"expected {least} (least_share) to 1")

    @property
    def unseen_ramp(self) -> float:
        """The relative rise a second that is assumed until a day has shown its own."""
        return min(self.ramp_prior, self.rise_prior / self.cold_start_s)

    @property
    def lead_s(self) -> float:
        """How far ahead demand must be known for a pod that is ordered now."""
        return self.cold_start_s + self.reaction_s
