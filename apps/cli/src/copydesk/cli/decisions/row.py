"""Decisions, put together where nothing changed from one to the next; no I/O."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from copydesk.autoscaler.log_entry import Entry
from copydesk.autoscaler.observer import Outcome

SAME_STORY_S = 30.0
"""Decisions that are further apart than this are not told as one."""


@dataclass(slots=True)
class Row:
    """One decision, or `count` of them that all kept the size by the same rule; `then` is what came of it."""

    first: Entry
    last: Entry
    count: int = 1
    then: list[Outcome] = field(default_factory=list)

    @property
    def p99_ms(self) -> float | None:
        """The worst latency that was seen after it."""
        return max((one.p99_ms for one in self.then if one.p99_ms is not None), default=None)

    @property
    def shed(self) -> int:
        """Requests that were refused after it."""
        return sum(one.shed for one in self.then)

    @property
    def failed(self) -> int:
        """Requests that failed after it."""
        return sum(one.failed for one in self.then)

    @property
    def completed(self) -> int:
        """Requests that were answered after it."""
        return sum(one.completed for one in self.then)


def rows(entries: Iterable[Entry], *, every: bool = False) -> list[Row]:
    """Return the rows of `entries`, which are in the order of their times; with `every`, one for each."""
    found: list[Row] = []
    open_rows: dict[tuple[str, str], Row] = {}
    for entry in entries:
        key = (entry.model, entry.policy)
        before = open_rows.get(key)
        if before is not None:
            before.then.append(entry.observed)
        if before is not None and not every and same_story(before.last, entry):
            before.last, before.count = entry, before.count + 1
            continue
        open_rows[key] = Row(entry, entry)
        found.append(open_rows[key])
    return found


def same_story(before: Entry, after: Entry) -> bool:
    """Say whether the second decision says nothing that the first has not said."""
    return (
        before.replicas == before.size == after.size == after.replicas
        and (before.rule, before.epoch, before.acted) == (after.rule, after.epoch, after.acted)
        and after.time - before.time <= SAME_STORY_S
    )
