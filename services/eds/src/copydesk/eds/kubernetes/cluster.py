"""What is known of the cluster: one pure reducer over what lists and watches tell, in whatever order.

Each statement has a place in order: the number of the list that it belongs to (lists of one resource are
numbered by whoever asks for them, and a watch continues a list), and the revision of Kubernetes' store. The
newest statement about an object wins, and a list is a statement about every object. That makes the state a join
of all that was told, so it depends on what was told and neither on the order nor on repetitions. Revisions are
compared as numbers, which Kubernetes guarantees (KEP-5504); the number of the list stands before them because a
store that was restored from a backup begins again with smaller ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from copydesk.eds.kubernetes.objects import EndpointSlice, Service
from copydesk.kube.objects import Metadata

Key = tuple[str, str]
"""Namespace and name."""

Order = tuple[int, int]
"""The number of a list, from 1, and a revision of the store."""

# Deleted objects are remembered, so that a late word does not raise them, until the next list; of many, the last.
MAX_REMEMBERED_DELETIONS = 1_000

NEVER: Order = (0, 0)

T = TypeVar("T", Service, EndpointSlice)


@dataclass(frozen=True, slots=True)
class Listed(Generic[T]):
    """At `order`, these were all the objects."""

    order: Order
    objects: tuple[T, ...]


@dataclass(frozen=True, slots=True)
class Written(Generic[T]):
    """At `order`, the object was created or changed to this."""

    order: Order
    object: T


@dataclass(frozen=True, slots=True)
class Deleted:
    """At `order`, the object was deleted, or left the selection."""

    order: Order
    key: Key


@dataclass(frozen=True, slots=True)
class Entry(Generic[T]):
    """The newest statement about an object: what it is, or that it is gone (None)."""

    order: Order
    object: T | None


@dataclass(frozen=True, slots=True)
class Collection(Generic[T]):
    """The objects of one resource; `listed_at` is the place of the newest list."""

    listed_at: Order = NEVER
    entries: Mapping[Key, Entry[T]] = field(default_factory=dict)

    @property
    def is_listed(self) -> bool:
        """Whether all objects are known."""
        return self.listed_at > NEVER

    def objects(self) -> list[T]:
        """Return the objects that there are, by key."""
        present = sorted((key, entry.object) for key, entry in self.entries.items() if entry.object is not None)
        return [item for _, item in present]


@dataclass(frozen=True, slots=True)
class Cluster:
    """The two collections that make endpoints."""

    services: Collection[Service] = field(default_factory=Collection)
    slices: Collection[EndpointSlice] = field(default_factory=Collection)

    @property
    def is_known(self) -> bool:
        """Whether both have been listed: before, an endpoint that does not show may well be there."""
        return self.services.is_listed and self.slices.is_listed


@dataclass(frozen=True, slots=True)
class OfServices:
    """Something was told about Services."""

    word: Listed[Service] | Written[Service] | Deleted


@dataclass(frozen=True, slots=True)
class OfSlices:
    """Something was told about EndpointSlices."""

    word: Listed[EndpointSlice] | Written[EndpointSlice] | Deleted


def reduce(cluster: Cluster, event: OfServices | OfSlices) -> Cluster:
    """Take in what was told; return the same cluster if it was known or outdated."""
    match event:
        case OfServices(word):
            services = learn(cluster.services, word)
            return cluster if services is cluster.services else replace(cluster, services=services)
        case OfSlices(word):
            slices = learn(cluster.slices, word)
            return cluster if slices is cluster.slices else replace(cluster, slices=slices)


def learn(collection: Collection[T], word: Listed[T] | Written[T] | Deleted) -> Collection[T]:
    """Take in one statement about one resource."""
    match word:
        case Listed(order, objects):
            return _restate(collection, order, objects)
        case Written(order, item):
            return _note(collection, key_of(item.metadata), Entry(order, item))
        case Deleted(order, key):
            return _note(collection, key, Entry(order, None))


def key_of(metadata: Metadata) -> Key:
    """Return what identifies an object among those of its resource."""
    return metadata.namespace, metadata.name


def _restate(collection: Collection[T], order: Order, objects: tuple[T, ...]) -> Collection[T]:
    if order <= collection.listed_at:
        return collection
    known = collection.entries
    entries = {key_of(item.metadata): Entry(order, _same(known, item)) for item in objects}
    entries |= {key: entry for key, entry in known.items() if entry.order > order}
    return Collection(order, entries)


def _same(known: Mapping[Key, Entry[T]], item: T) -> T:
    # An object that did not change stays the same one, so that what was derived from it is not derived again.
    entry = known.get(key_of(item.metadata))
    return item if entry is None or entry.object is None or entry.object != item else entry.object


def _note(collection: Collection[T], key: Key, entry: Entry[T]) -> Collection[T]:
    known = collection.entries.get(key)
    if entry.order <= collection.listed_at or (known is not None and known.order >= entry.order):
        return collection
    entries = {**collection.entries, key: entry}
    return replace(collection, entries=entries if entry.object is not None else _bounded(entries))


def _bounded(entries: dict[Key, Entry[T]]) -> dict[Key, Entry[T]]:
    gone = sorted((entry.order, key) for key, entry in entries.items() if entry.object is None)
    for _, key in gone[: max(0, len(gone) - MAX_REMEMBERED_DELETIONS)]:
        del entries[key]
    return entries
