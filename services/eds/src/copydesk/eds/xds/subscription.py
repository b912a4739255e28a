"""What one stream is owed of one type of resources: pure functions over what it asked for, got, and answered.

At most one response is out and unanswered. So a slow subscriber finds the newest state when it is done with the
last, never a backlog, and an answer can mean only one response. A resource is sent when its version is not the one
that was sent last, or when it is asked for again.

A refused response (NACK) does not say which of its resources was wrong, and Envoy drops them all. So they are sent
once more, each alone; what is refused alone is not sent again before it changes.

The protocol, and the words for its parts: https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

EVERYTHING = "*"
"""The name that stands for all resources of a type."""

Versions = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Flight:
    """A response that is out: its nonce, and the versions in it."""

    nonce: str
    versions: Versions


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a stream wants of one type, and has.

    `names` may contain `EVERYTHING`. `begun` is whether it has asked for anything yet, `named` whether it ever
    gave a name. `sent` are the versions that it was sent last, or said to have; `apart` the names that travel
    alone.
    """

    names: frozenset[str] = frozenset()
    begun: bool = False
    named: bool = False
    sent: Versions = field(default_factory=dict)
    apart: frozenset[str] = frozenset()
    flight: Flight | None = None

    def wants(self, name: str) -> bool:
        """Say whether the resource of that name is subscribed to."""
        return name in self.names or EVERYTHING in self.names


def choose(subscription: Subscription, names: Collection[str]) -> Subscription:
    """State of the world: these are all the names that the stream wants from now on.

    For historical reasons a stream that has never given a name means everything.
    """
    named = subscription.named or bool(names)
    chosen = replace(subscription, names=frozenset(names) if named else frozenset((EVERYTHING,)), named=named)
    return _without_unwanted(replace(chosen, begun=True))


def alter(
    subscription: Subscription, subscribe: Collection[str], unsubscribe: Collection[str], has: Versions
) -> Subscription:
    """Incremental: add and remove names. `has` is what the client kept from an earlier stream; it counts at first.

    What is subscribed to again is sent again; so is what was unsubscribed from by name while everything is wanted.
    """
    first = not subscription.begun
    names = (subscription.names | frozenset(subscribe)) - frozenset(unsubscribe)
    if first and not subscribe:
        names = frozenset((EVERYTHING,))
    asked = {*subscribe, *unsubscribe}
    everything_again = EVERYTHING in subscribe and EVERYTHING in subscription.names
    kept = {} if everything_again else _without(subscription.sent, asked)
    sent = {**kept, **has} if first else kept
    return _without_unwanted(replace(subscription, names=names, begun=True, named=True, sent=sent))


def answer(subscription: Subscription, nonce: str, *, refused: bool) -> Subscription:
    """Take in that the response of that nonce was accepted, or refused; without effect if another one is out."""
    flight = subscription.flight
    if flight is None or flight.nonce != nonce:
        return subscription
    landed = replace(subscription, flight=None)
    if not refused:
        return replace(landed, apart=subscription.apart - flight.versions.keys())
    again = flight.versions.items() if len(flight.versions) > 1 else ()
    sent = dict(subscription.sent.items() - again)
    return replace(landed, apart=subscription.apart | flight.versions.keys(), sent=sent)


def owed(subscription: Subscription, present: Versions) -> Versions:
    """Say what to send now, if anything, where `present` are the newest versions of all resources."""
    if subscription.flight is not None:
        return {}
    wanted = present.keys() if EVERYTHING in subscription.names else subscription.names & present.keys()
    due = {name: present[name] for name in wanted if subscription.sent.get(name) != present[name]}
    together = _without(due, subscription.apart)
    if together or not due:
        return together
    alone = min(due)
    return {alone: due[alone]}


def send(subscription: Subscription, versions: Versions, nonce: str) -> Subscription:
    """Note that these versions are out under `nonce`."""
    return replace(subscription, sent={**subscription.sent, **versions}, flight=Flight(nonce, versions))


def _without_unwanted(subscription: Subscription) -> Subscription:
    if EVERYTHING in subscription.names:
        return subscription
    unwanted = subscription.sent.keys() - subscription.names
    return replace(subscription, sent=_without(subscription.sent, unwanted)) if unwanted else subscription


def _without(versions: Versions, names: Collection[str]) -> Versions:
    return {name: version for name, version in versions.items() if name not in names}
