"""The state of the cluster: the newest word about an object wins, in whatever order words come."""

from __future__ import annotations

from random import Random
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from copydesk.eds.kubernetes import cluster as cluster_module
from copydesk.eds.kubernetes.cluster import (
    Cluster,
    Collection,
    Deleted,
    Listed,
    OfServices,
    OfSlices,
    Written,
    learn,
    reduce,
)
from copydesk.eds.kubernetes.objects import EndpointSlice, Service
from copydesk.eds.kubernetes.projection import Projector, project
from tests.fixtures.kube_objects import endpoint_slice, pod_json, service

SERVICES = ("gec", "chat")
SLICES = ("s1", "s2", "s3")
PODS = ("a", "b", "c")


def names(collection: Collection[Service]) -> list[str]:
    return [item.metadata.name for item in collection.objects()]


def told(*words: Listed[Service] | Written[Service] | Deleted) -> Collection[Service]:
    collection: Collection[Service] = Collection()
    for word in words:
        collection = learn(collection, word)
    return collection


def test_a_list_is_about_every_object_and_what_it_does_not_name_is_gone() -> None:
    first = Listed((1, 10), (service("a"), service("b")))
    assert names(told(first)) == ["a", "b"]
    assert names(told(first, Listed((2, 20), (service("b"),)))) == ["b"]


def test_objects_are_unknown_until_they_were_listed() -> None:
    assert not told(Written((1, 11), service("a"))).is_listed
    assert told(Listed((1, 10), ())).is_listed
    cluster = reduce(Cluster(), OfServices(Listed((1, 10), ())))
    assert not cluster.is_known
    assert reduce(cluster, OfSlices(Listed((1, 10), ()))).is_known


def test_a_late_word_changes_nothing() -> None:
    now = told(Listed((1, 10), (service("a"),)), Written((1, 12), service("b")), Deleted((1, 14), ("prod", "a")))
    late = (
        Listed((1, 10), (service("a"),)),
        Written((1, 9), service("c")),
        Written((1, 11), service("b", labels={"copydesk/model": "old"})),
        Written((1, 13), service("a")),
    )
    for word in late:
        assert learn(now, word) is now


def test_a_store_restored_with_smaller_revisions_is_believed_once_it_was_listed_again() -> None:
    now = told(Listed((1, 1000), (service("a"),)), Written((1, 1001), service("b")))
    restored = learn(now, Listed((2, 5), (service("c"),)))
    assert names(restored) == ["c"]
    assert names(learn(restored, Written((2, 6), service("d")))) == ["c", "d"]


def test_an_object_that_a_list_finds_unchanged_stays_the_same_one() -> None:
    before = told(Listed((1, 10), (service("a"),)))
    after = learn(before, Listed((2, 20), (service("a"),)))
    assert after.objects()[0] is before.objects()[0]


def test_of_many_deletions_only_the_last_are_remembered() -> None:
    words: list[Listed[Service] | Written[Service] | Deleted] = [Listed((1, 1), (service("a"),))]
    count = cluster_module.MAX_REMEMBERED_DELETIONS + 5
    words += [Deleted((1, 2 + number), ("prod", f"x{number}")) for number in range(count)]
    known = told(*words)
    assert len(known.entries) == cluster_module.MAX_REMEMBERED_DELETIONS + 1
    assert ("prod", f"x{count - 1}") in known.entries
    assert ("prod", "x0") not in known.entries
    assert names(known) == ["a"]


# Histories: a cluster that is written to step by step, and what lists and watches of two rounds tell of it.

pods = st.lists(
    st.builds(
        pod_json,
        st.sampled_from(PODS),
        st.sampled_from(("10.0.0.1", "10.0.0.2", "10.0.0.3")),
        ready=st.booleans(),
        terminating=st.booleans(),
    ),
    max_size=3,
)
service_writes = st.tuples(
    st.sampled_from(SERVICES), st.one_of(st.none(), st.sampled_from(("gec", "chat", "not a model")))
)
slice_writes = st.tuples(st.sampled_from(SLICES), st.one_of(st.none(), st.tuples(st.sampled_from(SERVICES), pods)))
histories = st.lists(
    st.one_of(st.tuples(st.just("service"), service_writes), st.tuples(st.just("slice"), slice_writes)),
    max_size=20,
)


class Store:
    """A cluster with revisions, and everything that could be told of it."""

    def __init__(self) -> None:
        self.revision = 1
        self.services: dict[str, Service] = {}
        self.slices: dict[str, EndpointSlice] = {}
        self.events: list[OfServices | OfSlices] = []

    def list(self, round_: int) -> None:
        order = (round_, self.revision)
        self.events.append(OfServices(Listed(order, tuple(self.services.values()))))
        self.events.append(OfSlices(Listed(order, tuple(self.slices.values()))))

    def write(self, round_: int, step: tuple[str, tuple[str, object]]) -> None:
        kind, (name, content) = step
        self.revision += 1
        order = (round_, self.revision)
        if kind == "service":
            self._write_service(order, name, content)
        else:
            self._write_slice(order, name, content)

    def _write_service(self, order: tuple[int, int], name: str, model: object) -> None:
        if model is None:
            self.services.pop(name, None)
            self.events.append(OfServices(Deleted(order, ("prod", name))))
            return
        self.services[name] = service(name, labels={"copydesk/model": model}, version=order[1])
        self.events.append(OfServices(Written(order, self.services[name])))

    def _write_slice(self, order: tuple[int, int], name: str, content: object) -> None:
        if content is None:
            self.slices.pop(name, None)
            self.events.append(OfSlices(Deleted(order, ("prod", name))))
            return
        owner, endpoints = cast(tuple[str, list[dict[str, Any]]], content)
        self.slices[name] = endpoint_slice(name, *endpoints, owner=owner, version=order[1])
        self.events.append(OfSlices(Written(order, self.slices[name])))


@given(histories, histories, st.randoms())
def test_any_order_and_repetition_of_the_same_words_gives_the_same_snapshot(
    first: list[tuple[str, tuple[str, object]]], second: list[tuple[str, tuple[str, object]]], random: Random
) -> None:
    store = Store()
    store.list(1)
    for step in first:
        store.write(1, step)
    store.list(2)
    for step in second:
        store.write(2, step)
    shuffled = [*store.events, *store.events[::2]]
    random.shuffle(shuffled)
    in_order, out_of_order = Cluster(), Cluster()
    for event in store.events:
        in_order = reduce(in_order, event)
    for event in shuffled:
        out_of_order = reduce(out_of_order, event)
    # The cluster as it is in the end, told by one list, is the truth that both must come to.
    truth = Cluster()
    truth = reduce(truth, OfServices(Listed((1, 1), tuple(store.services.values()))))
    truth = reduce(truth, OfSlices(Listed((1, 1), tuple(store.slices.values()))))
    assert project(in_order, "rpc") == project(out_of_order, "rpc") == project(truth, "rpc")


@given(histories)
def test_projecting_step_by_step_gives_what_projecting_from_nothing_gives(
    history: list[tuple[str, tuple[str, object]]],
) -> None:
    store = Store()
    store.list(1)
    for step in history:
        store.write(1, step)
    projector, cluster = Projector("rpc"), Cluster()
    for event in store.events:
        cluster = reduce(cluster, event)
        assert projector(cluster) == project(cluster, "rpc")


def test_a_model_of_which_nothing_changed_keeps_the_very_same_listing() -> None:
    cluster = Cluster()
    projector = Projector("rpc")
    cluster = reduce(cluster, OfServices(Listed((1, 1), (service("gec"), service("chat")))))
    slices = (endpoint_slice("g", pod_json("a")), endpoint_slice("c", pod_json("b", "10.0.0.2"), owner="chat"))
    cluster = reduce(cluster, OfSlices(Listed((1, 1), slices)))
    before = projector(cluster).models
    cluster = reduce(cluster, OfSlices(Written((1, 2), endpoint_slice("g", pod_json("a", ready=False)))))
    after = projector(cluster).models
    assert after["gec"] != before["gec"]
    assert after["chat"] is before["chat"]
