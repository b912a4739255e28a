"""What a stream is owed: requests, answers and changes may come in any order, it ends with the newest state."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.eds.xds.subscription import EVERYTHING, Subscription, alter, answer, choose, owed, send

NAMES = ("a", "b", "c", "d")
PRESENT = {"a": "1", "b": "1", "c": "1"}

# Takes in a request for these names; returns also which of them are asked for, be they sent already or not.
Variant = Callable[[Subscription, frozenset[str]], tuple[Subscription, set[str]]]


def begun(*names: str) -> Subscription:
    return choose(Subscription(), names)


def sent_all(subscription: Subscription, present: Mapping[str, str], nonce: str = "n") -> Subscription:
    return send(subscription, owed(subscription, present), nonce)


def settled(subscription: Subscription, present: Mapping[str, str]) -> Subscription:
    return answer(sent_all(subscription, present), "n", refused=False)


def test_a_stream_is_owed_what_it_names_and_what_there_is() -> None:
    assert owed(begun("a", "nobody"), PRESENT) == {"a": "1"}


def test_a_stream_that_has_asked_for_nothing_is_owed_nothing() -> None:
    assert owed(Subscription(), PRESENT) == {}


@pytest.mark.parametrize("names", [(), (EVERYTHING,), (EVERYTHING, "a")])
def test_an_empty_first_list_or_a_star_means_everything(names: tuple[str, ...]) -> None:
    assert owed(begun(*names), PRESENT) == PRESENT
    assert owed(alter(Subscription(), names, (), {}), PRESENT) == PRESENT


def test_an_empty_list_after_names_means_nothing() -> None:
    assert owed(choose(begun("a"), ()), PRESENT) == {}


def test_a_star_can_be_given_back() -> None:
    assert owed(choose(begun(EVERYTHING), ("b",)), PRESENT) == {"b": "1"}
    incremental = alter(alter(Subscription(), (EVERYTHING, "b"), (), {}), (), (EVERYTHING,), {})
    assert owed(incremental, PRESENT) == {"b": "1"}


def test_nothing_is_sent_while_a_response_is_unanswered_and_then_only_the_newest() -> None:
    out = sent_all(begun("a"), PRESENT)
    assert owed(out, {"a": "2"}) == {}
    assert owed(out, {"a": "3"}) == {}
    assert owed(answer(out, "n", refused=False), {"a": "3"}) == {"a": "3"}


def test_an_answer_to_another_response_counts_for_nothing() -> None:
    out = sent_all(begun("a"), PRESENT)
    for nonce in ("", "older"):
        assert answer(out, nonce, refused=False) == out
        assert answer(out, nonce, refused=True) == out


def test_what_was_sent_is_not_sent_again() -> None:
    assert owed(settled(begun("a", "b"), PRESENT), PRESENT) == {}


def test_a_change_sends_only_what_changed() -> None:
    assert owed(settled(begun(), PRESENT), {**PRESENT, "b": "2"}) == {"b": "2"}


def test_a_refused_resource_is_sent_again_once_it_has_changed() -> None:
    refused = answer(sent_all(begun("a"), PRESENT), "n", refused=True)
    assert owed(refused, PRESENT) == {}
    assert owed(refused, {"a": "2"}) == {"a": "2"}


def test_of_a_refused_response_each_resource_is_tried_alone_and_the_good_ones_arrive() -> None:
    stream = answer(sent_all(begun(), PRESENT), "n", refused=True)
    tried = []
    while due := owed(stream, PRESENT):
        tried.append(due)
        stream = answer(send(stream, due, "n"), "n", refused="b" in due)
    assert tried == [{"a": "1"}, {"b": "1"}, {"c": "1"}]
    assert owed(stream, {"a": "2", "b": "2", "c": "2"}) == {"a": "2", "c": "2"}, "only b is still apart"


def test_a_name_that_was_given_up_and_taken_again_is_sent_again() -> None:
    stream = settled(begun("a", "b"), PRESENT)
    assert owed(choose(choose(stream, ("b",)), ("a", "b")), PRESENT) == {"a": "1"}


def test_incremental_sends_again_what_is_asked_for_again() -> None:
    stream = answer(sent_all(alter(Subscription(), ("a", "b"), (), {}), PRESENT), "n", refused=False)
    assert owed(alter(stream, ("a",), (), {}), PRESENT) == {"a": "1"}
    assert owed(alter(stream, (), (), {}), PRESENT) == {}


def test_incremental_sends_everything_again_if_everything_is_asked_for_again() -> None:
    stream = answer(sent_all(alter(Subscription(), (), (), {}), PRESENT), "n", refused=False)
    assert owed(alter(stream, (EVERYTHING,), (), {}), PRESENT) == PRESENT


def test_incremental_does_not_send_what_the_client_kept_from_an_earlier_stream() -> None:
    stream = alter(Subscription(), ("a", "b"), (), {"a": "1", "b": "0"})
    assert owed(stream, PRESENT) == {"b": "1"}


def test_incremental_answers_for_a_name_given_back_while_everything_is_wanted() -> None:
    stream = answer(sent_all(alter(Subscription(), (EVERYTHING, "a"), (), {}), PRESENT), "n", refused=False)
    assert owed(alter(stream, (), ("a",), {}), PRESENT) == {"a": "1"}


@dataclass
class World:
    """A server and a client with queues between them; the client refuses versions that end in 7."""

    request: Variant
    present: dict[str, str] = field(default_factory=dict)
    stream: Subscription = field(default_factory=Subscription)
    wants: frozenset[str] = frozenset()
    held: dict[str, str] = field(default_factory=dict)
    to_server: deque[tuple[frozenset[str], str, bool]] = field(default_factory=deque)
    to_client: deque[tuple[str, dict[str, str]]] = field(default_factory=deque)
    last_nonce: str = ""
    delivered: set[tuple[str, str]] = field(default_factory=set)
    clock: int = 0

    def ask(self, names: frozenset[str]) -> None:
        """The client changes its mind, and says so under the nonce that it saw last."""
        self.wants = names
        self.held = {name: version for name, version in self.held.items() if wanted(name, names)}
        self.to_server.append((names, self.last_nonce, False))

    def change(self, name: str) -> None:
        self.clock += 1
        self.present[name] = str(self.clock)

    def push(self) -> None:
        due = owed(self.stream, self.present)
        if not due:
            return
        assert not self.delivered & due.items(), "sent twice, and nobody asked"
        self.delivered |= due.items()
        self.clock += 1
        self.stream = send(self.stream, due, f"n{self.clock}")
        self.to_client.append((f"n{self.clock}", dict(due)))
        assert len(self.to_client) == 1, "a backlog"

    def hear(self) -> None:
        """The client takes in a response and answers it."""
        if not self.to_client:
            return
        self.last_nonce, versions = self.to_client.popleft()
        refused = any(is_bad(version) for version in versions.values())
        if not refused:
            self.held |= {name: version for name, version in versions.items() if wanted(name, self.wants)}
        self.to_server.append((self.wants, self.last_nonce, refused))

    def serve(self) -> None:
        """The server takes in a request."""
        if not self.to_server:
            return
        names, nonce, refused = self.to_server.popleft()
        flight = self.stream.flight
        if refused and flight is not None and flight.nonce == nonce and len(flight.versions) > 1:
            self.delivered -= flight.versions.items()
        self.stream, asked = self.request(answer(self.stream, nonce, refused=refused), names)
        self.delivered = {(name, version) for name, version in self.delivered if name not in asked}

    def settle(self) -> None:
        for _ in range(200):
            self.push()
            self.hear()
            self.serve()
        assert not self.to_client
        assert not self.to_server


def wanted(name: str, names: frozenset[str]) -> bool:
    return name in names or EVERYTHING in names


def is_bad(version: str) -> bool:
    return version.endswith("7")


def state_of_world(stream: Subscription, names: frozenset[str]) -> tuple[Subscription, set[str]]:
    """State all names; asked for is what was not wanted before."""
    after = choose(stream, names)
    return after, {name for name in NAMES if after.wants(name) and not stream.wants(name)}


def incremental(stream: Subscription, names: frozenset[str]) -> tuple[Subscription, set[str]]:
    """Say the difference to what the server knows; asked for is also what is named or given back by name."""
    after = alter(stream, names - stream.names, stream.names - names, {})
    newly = {name for name in NAMES if after.wants(name) and not stream.wants(name)}
    return after, newly | (names ^ stream.names)


subsets = st.frozensets(st.sampled_from((*NAMES, EVERYTHING)), min_size=1)
actions = st.one_of(
    st.tuples(st.just("ask"), subsets),
    st.tuples(st.just("change"), st.sampled_from(NAMES)),
    st.sampled_from((("push",), ("hear",), ("serve",))),
)


@pytest.mark.parametrize("variant", [state_of_world, incremental])
@given(script=st.lists(actions, max_size=60))
def test_any_interleaving_ends_with_the_newest_state_and_sends_no_version_twice(
    variant: Variant, script: list[tuple[object, ...]]
) -> None:
    world = World(variant)
    for action, *arguments in script:
        getattr(world, str(action))(*arguments)
    world.settle()
    newest = {name: version for name, version in world.present.items() if wanted(name, world.wants)}
    good = {name: version for name, version in newest.items() if not is_bad(version)}
    assert good.items() <= world.held.items()
    assert world.held.keys() <= newest.keys()
