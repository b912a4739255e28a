"""Who publishes: the rules by which replicas share a Lease (coordination.k8s.io/v1). Pure.

The rules are those of Kubernetes' own leader election (client-go). A holder renews; others wait until the record
has not changed for its whole duration, by their own clock, and then take it over. A write counts only if nobody
else wrote since (the server compares versions), so two that try at once cannot both win. The holder stops leading
before its time is over, counted from when it asked for it.

That leaves a holder that is paused between asking itself and publishing. Hence the epoch, which each publication
carries: it is the lease's `acquireTime`, and whoever takes over writes one that is larger than its predecessor's,
whatever its own clock says. Receivers follow the larger one.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from copydesk.kube.objects import Lease, LeaseSpec, Metadata

# A leader stops this part of the duration before its time is over: clocks may run at different speeds.
MARGIN = 1 / 6

LARGEST_EPOCH = 250_000_000_000_000
"""Milliseconds: the year 9892. A lease with a larger one was written by no publisher, and nobody could write one
that is larger still: the dates of the API end with the year 9999."""


@dataclass(frozen=True, slots=True)
class Term:
    """Someone's hold on the lease: `epoch` in Unix milliseconds, `duration` in seconds; no holder: it is free.

    `transitions` counts how often the lease has changed hands; `version` is the one that a write replaces.
    """

    holder: str
    epoch: int
    duration: float
    transitions: int
    version: str


@dataclass(frozen=True, slots=True)
class Sighting:
    """The lease as last read (None: there is none), and since when it has been the same, in monotonic seconds."""

    term: Term | None
    since: float


class Move(enum.StrEnum):
    """What a replica does about the lease."""

    RENEW = "renew"
    TAKE = "take"
    CREATE = "create"
    WAIT = "wait"


def see(before: Sighting | None, term: Term | None, now: float) -> Sighting:
    """Take in what was read at `now`; a lease that was not written since keeps its age."""
    if before is not None and _version(before.term) == _version(term):
        return before
    return Sighting(term, now)


def next_move(sighting: Sighting, identity: str, now: float, last_epoch: int = 0) -> Move:
    """Decide what the replica `identity` does at `now`; `last_epoch` is the largest that it has ever seen.

    Who holds a term with a smaller epoch takes the lease anew, since nobody would heed it.
    """
    term = sighting.term
    if term is None:
        return Move.CREATE
    if term.holder == identity:
        return Move.RENEW if term.epoch >= last_epoch else Move.TAKE
    if not term.holder or now - sighting.since >= term.duration:
        return Move.TAKE
    return Move.WAIT


def claim(term: Term | None, identity: str, duration: float, wall: float, last_epoch: int) -> Term:
    """Return the term that `identity` writes to take over from `term`, at `wall` in Unix seconds.

    `last_epoch` is the largest that this replica has ever seen, which matters when the lease was deleted.
    """
    known = max(last_epoch, term.epoch if term is not None else 0)
    return Term(
        holder=identity,
        epoch=max(int(wall * 1000), known + 1),
        duration=duration,
        transitions=term.transitions + 1 if term is not None else 0,
        version=term.version if term is not None else "",
    )


def released(term: Term) -> Term:
    """Return what a holder writes that stands down: the lease is free at once."""
    return replace(term, holder="", duration=1.0)


def leads_until(asked_at: float, term: Term) -> float:
    """Say until when, in monotonic seconds, the holder leads by a write that it asked for at `asked_at`."""
    return asked_at + term.duration * (1.0 - MARGIN)


def read_lease(lease: Lease) -> Term:
    """Understand a lease; one that says nothing of a duration is taken to be over."""
    spec = lease.spec or LeaseSpec()
    return Term(
        holder=spec.holder_identity or "",
        epoch=_milliseconds(spec.acquire_time),
        duration=float(spec.lease_duration_seconds or 0),
        transitions=spec.lease_transitions or 0,
        version=lease.metadata.resource_version,
    )


def write_lease(term: Term, name: str, namespace: str, wall: float) -> Lease:
    """Put `term` into words, as renewed at `wall` in Unix seconds."""
    return Lease(
        metadata=Metadata(name=name, namespace=namespace, resource_version=term.version),
        spec=LeaseSpec(
            holder_identity=term.holder or None,
            lease_duration_seconds=max(1, round(term.duration)),
            acquire_time=_timestamp(term.epoch),
            renew_time=_timestamp(int(wall * 1000)),
            lease_transitions=term.transitions,
        ),
    )


def _version(term: Term | None) -> str | None:
    return term.version if term is not None else None


def _timestamp(milliseconds: int) -> str:
    seconds, rest = divmod(milliseconds, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:03d}000Z"


def _milliseconds(text: str | None) -> int:
    try:
        epoch = round(datetime.fromisoformat(text or "").timestamp() * 1000)
    except (ValueError, OverflowError):
        return 0
    return epoch if 0 <= epoch <= LARGEST_EPOCH else 0
