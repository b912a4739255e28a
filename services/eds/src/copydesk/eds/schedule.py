"""When to publish a model's endpoints: on change, after a debounce, and in full at an interval."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from copydesk.eds.roster import Listing


@dataclass(frozen=True, slots=True)
class Pace:
    """`debounce`: how long changes are gathered; `interval`: how often all is repeated. Both in seconds."""

    debounce: float
    interval: float


@dataclass(frozen=True, slots=True)
class Publication:
    """What is to be published of one model, and since when; times in monotonic seconds.

    `generation` counts changes of `endpoints`. `changed_at` is when the first change not yet published came
    (None: none waits), and `urgent` whether one of them was a change of an endpoint's state.
    """

    endpoints: Listing
    generation: int
    changed_at: float | None
    urgent: bool = False
    published_at: float = -math.inf


def revise(publication: Publication | None, endpoints: Listing, now: float) -> Publication:
    """Note what is to be published from `now` on; the first listing of a model is a change too."""
    if publication is None:
        return Publication(endpoints, generation=1, changed_at=now)
    if publication.endpoints == endpoints:
        return publication
    return replace(
        publication,
        endpoints=endpoints,
        generation=publication.generation + 1,
        changed_at=now if publication.changed_at is None else publication.changed_at,
        urgent=publication.urgent or _has_new_state(publication.endpoints, endpoints),
    )


def due_at(publication: Publication, pace: Pace) -> float:
    """Say when `publication` is to be sent next.

    Changes are gathered for the debounce from the first of them, so that a stream of changes cannot put it off
    for ever. A change of state goes out at once (a draining pod must get no more work), yet never less than the
    debounce after the last publication.
    """
    if publication.changed_at is None:
        return publication.published_at + pace.interval
    if publication.urgent:
        return max(publication.changed_at, publication.published_at + pace.debounce)
    return publication.changed_at + pace.debounce


def published(publication: Publication, now: float) -> Publication:
    """Note that `publication` was sent at `now`."""
    return replace(publication, changed_at=None, urgent=False, published_at=now)


def renewed(publication: Publication) -> Publication:
    """Make `publication` due at once."""
    return replace(publication, changed_at=None, urgent=False, published_at=-math.inf)


def _has_new_state(before: Listing, after: Listing) -> bool:
    states = {endpoint.id: endpoint.state for endpoint in before}
    return any(states.get(endpoint.id, endpoint.state) is not endpoint.state for endpoint in after)
