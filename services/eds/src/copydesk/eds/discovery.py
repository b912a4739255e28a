"""All decisions of discovery put together: events in, snapshots and suspects out; no I/O and no clock."""

from __future__ import annotations

import math
from dataclasses import dataclass

from copydesk.common.messages import Endpoint, EndpointsSnapshot
from copydesk.eds.guard import Guard, Limits, confirm_gone, rule
from copydesk.eds.roster import Event, Listing, Roster, Step, listing, reduce
from copydesk.eds.schedule import Pace, Publication, due_at, published, renewed, revise


@dataclass(frozen=True, slots=True)
class Policy:
    """The numbers by which discovery decides; `timeout` and `settle`, in seconds, are those of the roster."""

    timeout: float
    settle: float
    limits: Limits
    pace: Pace


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a review of one model changed.

    Its endpoints before and after, and the suspects before and after; `proven` are those of the suspects before
    that a probe did not find.
    """

    model: str
    before: Listing
    after: Listing
    held_before: Listing
    held: Listing
    proven: frozenset[Endpoint]

    @property
    def newly_held(self) -> Listing:
        """The endpoints whose loss is held back from now on."""
        known = {endpoint.id for endpoint in self.held_before}
        return tuple(endpoint for endpoint in self.held if endpoint.id not in known)


@dataclass(frozen=True, slots=True)
class Held:
    """An endpoint whose loss is held back, and for how many seconds it has been."""

    endpoint: Endpoint
    seconds: float


class Discovery:
    """The state of one replica, advanced by its caller.

    What an event leaves alone costs nothing: a review looks at the models that events have touched since the last
    one, and at those of which something is held back.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._roster = Roster(timeout=policy.timeout, settle=policy.settle)
        self._touched: set[str] = set()
        self._guards: dict[str, Guard] = {}
        self._publications: dict[str, Publication] = {}

    @property
    def settled(self) -> bool:
        """Whether the source has had time to name everybody."""
        return self._roster.settled

    @property
    def stale(self) -> bool:
        """Whether the source cannot be heard at present, so that what is known is what it stated last."""
        return self._roster.stale

    def apply(self, event: Event) -> Step:
        """Take in one event; it shows in snapshots after the next `review`."""
        step = reduce(self._roster, event)
        self._roster = step.roster
        self._touched |= step.changed
        return step

    def review(self, now: float) -> list[Verdict]:
        """Decide what may be published at `now`; return the models of which that, or a suspicion, changed.

        Nothing is decided before the sources have had time to name everybody: a first snapshot with a part of
        the fleet would take the rest out of service.
        """
        if not self._roster.settled:
            return []
        touched, self._touched = self._touched, set()
        verdicts = [self._review(model, now) for model in sorted(touched)]
        return [verdict for verdict in verdicts if verdict is not None]

    def _review(self, model: str, now: float) -> Verdict | None:
        before = self._guards.get(model, Guard())
        own_word = self._roster.words.get(model, {}).keys()
        desired = listing(self._roster, model)
        after = rule(before, desired, self._roster.clock.reading, self._policy.limits, own_word)
        self._guards[model] = after
        if after.held:
            self._touched.add(model)
        self._publications[model] = revise(self._publications.get(model), after.released, now)
        if before.released == after.released and before.held == after.held:
            return None
        return Verdict(model, before.released, after.released, before.suspects, after.suspects, before.gone)

    def suspects(self) -> list[tuple[str, Endpoint]]:
        """Return the endpoints, each with its model, that a probe should look for."""
        return [
            (model, endpoint) for model, guard in self._guards.items() if guard.held for endpoint in guard.suspects
        ]

    def confirm_gone(self, model: str, endpoint: Endpoint) -> None:
        """Take in that a probe found nobody at the address of a suspect, or nobody who is ready."""
        self._guards[model] = confirm_gone(self._guards[model], endpoint)

    def held(self, model: str) -> list[Held]:
        """Return what is held back of `model`; seconds are those in which its source could be heard."""
        guard = self._guards.get(model, Guard())
        reading = self._roster.clock.reading
        return [Held(endpoint, reading - guard.held[endpoint.id]) for endpoint in guard.suspects]

    def due_at(self) -> float:
        """Say at what monotonic time the next snapshot is due; infinity if there is none to send."""
        pace = self._policy.pace
        return min((due_at(publication, pace) for publication in self._publications.values()), default=math.inf)

    def renew(self) -> None:
        """Make a snapshot of every model due at once: whoever receives them has to hear all anew."""
        for model, publication in self._publications.items():
            self._publications[model] = renewed(publication)

    def collect(self, now: float, wall: float, epoch: int) -> list[EndpointsSnapshot]:
        """Return the snapshots that are due at `now`, as sent.

        `wall`, in Unix seconds, and `epoch`, which marks their publisher, go into them.
        """
        pace = self._policy.pace
        due = [model for model, item in self._publications.items() if due_at(item, pace) <= now]
        for model in due:
            self._publications[model] = published(self._publications[model], now)
        return [self._snapshot(model, wall, epoch) for model in due]

    def current(self, wall: float, epoch: int) -> list[EndpointsSnapshot]:
        """Return what may be published of every model, due or not; of the models that are decided on."""
        return [self._snapshot(model, wall, epoch) for model in sorted(self._publications)]

    def _snapshot(self, model: str, wall: float, epoch: int) -> EndpointsSnapshot:
        publication = self._publications[model]
        return EndpointsSnapshot(
            model=model,
            epoch=epoch,
            generation=publication.generation,
            sent_at=wall,
            endpoints=publication.endpoints,
            stale=self._roster.stale,
        )
