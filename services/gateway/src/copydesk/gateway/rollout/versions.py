"""What is counted of a rollout: what became of requests to the candidate, and how answers compare."""

from __future__ import annotations

from collections.abc import Sequence

from copydesk.common.messages import ComparedTotals, VersionTotals
from copydesk.gateway.demand import LATENCY_BOUNDS, Demand
from copydesk.gateway.metrics import Histogram

MOST_WORDS = 1_000
"""Of each of two texts, that are compared: half a millisecond's work at the most."""


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

    Of long texts the first `MOST_WORDS` words count: whoever repeats one word for ever shall hold nobody up.
    """
    if one == other:
        return 1.0
    left, right = (text.split(None, MOST_WORDS)[:MOST_WORDS] for text in (one, other))
    if not left and not right:
        return 1.0
    return 2.0 * _common(left, right) / (len(left) + len(right))


def _common(left: Sequence[str], right: Sequence[str]) -> int:
    """Return the length of the longest common subsequence, whatever the words in time for `MOST_WORDS` of them.

    One number has a bit for each word of `left`: Hyyrö, "Bit-parallel LCS-length computation revisited" (AWOCA
    2004).
    """
    places: dict[str, int] = {}
    for place, word in enumerate(left):
        places[word] = places.get(word, 0) | 1 << place
    everywhere = (1 << len(left)) - 1
    free = everywhere
    for word in right:
        found = free & places.get(word, 0)
        free = ((free + found) | (free - found)) & everywhere
    return len(left) - free.bit_count()
