"""What became of the requests: how many were answered well in time, how often, and the longest outage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from copydesk.loadtest.pulse import Stall, standing_still
from copydesk.loadtest.sample import Sample
from copydesk.loadtest.trial import SHED

UNTRUE = frozenset({"other_id", "other_answer", "not_json", "bad_answer"})
"""Kinds of failure that are answers, and wrong ones."""
NO_ANSWER = frozenset({"unfinished", "disconnected"})
"""Kinds of failure of requests that were taken and never answered."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """A run's requests.

    `good` were answered rightly within the deadline, `late` rightly after it. `wrong` got another answer than the
    fleet gave before the faults, or that of another request. `refused` were told to come back later, `unanswered`
    were accepted and never answered, `failed` is every other failure. `unasked` counts answers that belong to no
    request: one that is answered twice has one. `amid_stalls` of those that are not good were due or under way
    while the machine stood still.
    """

    offered: int
    good: int
    late: int
    wrong: int
    refused: int
    unanswered: int
    failed: int
    unasked: int
    outage_s: float
    outage_at: float
    amid_stalls: int = 0

    @property
    def availability(self) -> float:
        """The part of the requests that was answered well in time."""
        return self.good / self.offered if self.offered else 0.0

    @property
    def once(self) -> bool:
        """Whether every request that was accepted was answered exactly once."""
        return self.unanswered == 0 and self.wrong == 0 and self.unasked == 0


def sum_up(samples: Sequence[Sample], deadline_s: float, unasked: int, stalls: Sequence[Stall] = ()) -> Outcome:
    """Sum up `samples`, in the order in which they were due."""
    kinds = Counter(sample.failure.kind for sample in samples if sample.failure is not None)
    wrong, unanswered, refused = (_of(kinds, some) for some in (UNTRUE, NO_ANSWER, SHED))
    answered = sum(sample.failure is None for sample in samples)
    good = sum(_good(sample, deadline_s) for sample in samples)
    outage_s, outage_at = longest_outage(samples, deadline_s)
    return Outcome(
        offered=len(samples),
        good=good,
        late=answered - good,
        wrong=wrong,
        refused=refused,
        unanswered=unanswered,
        failed=kinds.total() - wrong - unanswered - refused,
        unasked=unasked,
        outage_s=outage_s,
        outage_at=outage_at,
        amid_stalls=sum(
            standing_still(sample.planned, sample.finished, stalls)
            for sample in samples
            if not _good(sample, deadline_s)
        ),
    )


def longest_outage(samples: Sequence[Sample], deadline_s: float) -> tuple[float, float]:
    """Return the longest time in which no request that was due got a good answer, and the second it began at.

    It begins when the first of a row of such requests was due, and ends when the first good one after them was,
    or with the last of them.
    """
    longest, began, since = 0.0, 0.0, None
    for sample in samples:
        if _good(sample, deadline_s):
            if since is not None and sample.planned - since > longest:
                longest, began = sample.planned - since, since
            since = None
        elif since is None:
            since = sample.planned
    if since is not None and samples[-1].planned - since >= longest:
        longest, began = max(samples[-1].planned - since, deadline_s), since
    return longest, began


def _good(sample: Sample, deadline_s: float) -> bool:
    return sample.failure is None and sample.latency <= deadline_s


def _of(kinds: Counter[str], some: frozenset[str] | Sequence[str]) -> int:
    return sum(kinds[kind] for kind in some)
