"""What is counted of a rollout: what became of requests to the candidate, and how answers compare."""

from __future__ import annotations

from difflib import SequenceMatcher

from copydesk.common.messages import ComparedTotals, VersionTotals
from copydesk.gateway.demand import LATENCY_BOUNDS, Demand
from copydesk.gateway.metrics import Histogram


class CandidateCount:
    """What became of the requests that were drawn for the candidate.

    `failures` and `refused` are its alone: the baseline has answered these requests then, or has failed as well.
    """

    def __init__(self) -> None:
        self.latency = Histogram(LATENCY_BOUNDS)
        self.failures = 0
        self.refused = 0

    @property
    def requests(self) -> int:
        """Those that it has answered."""
        return sum(self.latency.counts)

    def totals(self, digest: str, pods: int) -> VersionTotals:
        """Return them for a report."""
        return VersionTotals(
            digest=digest,
            pods=pods,
            requests=self.requests,
            failures=self.failures,
            refused=self.refused,
            counts=tuple(self.latency.counts),
            total_s=self.latency.total,
        )


def rest_of(demand: Demand, candidate: CandidateCount, digest: str, pods: int) -> VersionTotals:
    """Return what the baseline did: everything that was counted but what the candidate answered."""
    counts = tuple(one - other for one, other in zip(demand.latency.counts, candidate.latency.counts, strict=True))
    return VersionTotals(
        digest=digest,
        pods=pods,
        requests=sum(counts),
        failures=demand.failed,
        refused=demand.shed,
        counts=counts,
        total_s=demand.latency.total - candidate.latency.total,
    )


class Comparison:
    """How the candidate's answers compare with those that clients got; texts are looked at and forgotten."""

    def __init__(self) -> None:
        self.same = self.both_changed = self.only_candidate = self.only_baseline = 0
        self.failed = self.timeouts = self.dropped = 0
        self.likeness = 0.0

    @property
    def compared(self) -> int:
        """All pairs."""
        return self.same + self.both_changed + self.only_candidate + self.only_baseline

    def compare(self, source: str, baseline: str, candidate: str) -> None:
        """Count a pair of corrected texts, by which of them differ from the `source`."""
        self.likeness += likeness(baseline, candidate)
        if baseline == candidate:
            self.same += 1
        elif baseline == source:
            self.only_candidate += 1
        elif candidate == source:
            self.only_baseline += 1
        else:
            self.both_changed += 1

    def outcomes(self) -> dict[str, int]:
        """Return the counts by name."""
        names = ("same", "both_changed", "only_candidate", "only_baseline", "failed", "timeouts", "dropped")
        return {name: getattr(self, name) for name in names}

    def totals(self) -> ComparedTotals:
        """Return them for a report."""
        return ComparedTotals(compared=self.compared, likeness=self.likeness, **self.outcomes())


def likeness(one: str, other: str) -> float:
    """Return the share of words that two texts have in common, in order, 1 for equal ones.

    Ratcliff and Metzener, "Pattern matching: the Gestalt approach", Dr. Dobb's Journal (1988), by words.
    """
    if one == other:
        return 1.0
    return SequenceMatcher(None, one.split(), other.split(), autojunk=False).ratio()
