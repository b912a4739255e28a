"""How few and how many pods there may be, and how fast that may change."""

from __future__ import annotations

from dataclasses import dataclass

from copydesk.common.errors import CopydeskError


class LimitsError(CopydeskError):
    """Limits that cannot be kept: `key` names the one that is wrong, `value` is what it was, `reason` says why."""

    exit_code = 2

    def __init__(self, key: str, value: object, reason: str) -> None:
        self.key = key
        self.value = value
        self.reason = reason
        super().__init__(f"{key}={value}: {reason}")


@dataclass(frozen=True, slots=True)
class Limits:
    """The smallest and the largest number of pods; they clamp last, whatever else was decided.

    Raises:
        LimitsError: They cannot both be kept. No pod at all is no size: nobody could tell demand then.
    """

    min_pods: int = 1
    max_pods: int = 300

    def __post_init__(self) -> None:
        if self.min_pods < 1:
            raise LimitsError("min_pods", self.min_pods, "expected 1 or more")
        if self.max_pods < self.min_pods:
            raise LimitsError("max_pods", self.max_pods, f"expected min_pods ({self.min_pods}) or more")

    def clamp(self, size: int) -> int:
        """Return the size nearest to `size` that is within the limits."""
        return min(self.max_pods, max(self.min_pods, size))
