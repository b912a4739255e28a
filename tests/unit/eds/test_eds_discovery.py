"""Events in, snapshots out, in virtual time."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from copydesk.common.messages import Endpoint, EndpointsSnapshot, EndpointState
from copydesk.eds.discovery import Discovery, Policy, Verdict
from copydesk.eds.guard import Limits
from copydesk.eds.roster import Elapsed, Listed, Reported
from copydesk.eds.schedule import Pace
from tests.unit.eds.test_eds_roster import report

POLICY = Policy(timeout=3.0, settle=1.0, limits=Limits(5.0, 60.0), pace=Pace(0.05, 2.0))


class World:
    """A discovery in virtual time, its pods, and what it published at what time."""

    def __init__(self) -> None:
        self.discovery = Discovery(POLICY)
        self.now = 0.0
        self.connected_since: float | None = 0.0
        self.pods: dict[str, EndpointState] = {}
        self.sent: list[tuple[float, EndpointsSnapshot]] = []
        self.sequence = 0

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds * 20)):
            self.now = round(self.now + 0.05, 6)
            if self.connected_since is not None:
                self.report()
            self.discovery.apply(Elapsed(self.now, self.connected_since))
            self.discovery.review(self.now)
            if self.connected_since is not None:
                self.sent += [(self.now, s) for s in self.discovery.collect(self.now, wall=self.now, epoch=7)]

    def report(self) -> None:
        self.sequence += 1
        for pod, state in self.pods.items():
            self.discovery.apply(Reported(report(pod, self.sequence, state=state, port=1000 + ord(pod[0]))))

    def last(self) -> str:
        return "".join(endpoint.id for endpoint in self.sent[-1][1].endpoints)


def test_the_first_snapshot_waits_until_everybody_had_time_to_report() -> None:
    world = World()
    world.pods = {"a": EndpointState.READY}
    world.run(0.5)
    world.pods["b"] = EndpointState.READY
    world.run(0.4)
    assert world.sent == []
    assert world.discovery.due_at() == math.inf
    world.run(0.3)
    assert world.last() == "ab"
    assert world.sent[0][1].epoch == 7


def test_a_long_outage_of_the_bus_changes_nothing_and_the_list_is_repeated_at_once_after() -> None:
    world = World()
    world.pods = dict.fromkeys("abc", EndpointState.READY)
    world.run(3)
    generation = world.sent[-1][1].generation
    world.connected_since = None
    world.run(300)
    sends = len(world.sent)
    world.connected_since = world.now
    world.run(0.1)
    assert len(world.sent) > sends
    world.run(10)
    assert world.last() == "abc"
    assert world.sent[-1][1].generation == generation


def test_a_loss_that_was_held_when_the_bus_went_is_still_held_when_it_is_back() -> None:
    world = World()
    world.pods = dict.fromkeys("ab", EndpointState.READY)
    world.run(3)
    world.pods = {}
    world.run(4)
    assert len(world.discovery.suspects()) == 2
    world.connected_since = None
    world.run(600)
    world.connected_since = world.now
    world.run(1)
    assert world.last() == "ab"
    world.pods = dict.fromkeys("ab", EndpointState.READY)
    world.run(5)
    assert world.discovery.suspects() == []
    assert world.last() == "ab"


def test_a_proven_loss_is_published_and_so_is_the_empty_list_from_then_on() -> None:
    world = World()
    world.pods = {"a": EndpointState.READY}
    world.run(3)
    world.pods = {}
    world.run(4)
    assert world.last() == "a"
    for model, endpoint in world.discovery.suspects():
        world.discovery.confirm_gone(model, endpoint)
    world.run(5)
    assert [snapshot.endpoints for _, snapshot in world.sent[-2:]] == [(), ()]


def test_draining_is_published_in_the_turn_in_which_it_is_heard_and_the_end_is_not_held() -> None:
    world = World()
    world.pods = {"a": EndpointState.READY}
    world.run(3)
    world.pods = {"a": EndpointState.DRAINING}
    world.run(0.05)
    at, snapshot = world.sent[-1]
    assert at == world.now
    assert snapshot.endpoints[0].state is EndpointState.DRAINING
    world.pods = {}
    world.run(4)
    assert world.last() == ""


def test_each_model_has_its_own_snapshot_and_generation() -> None:
    discovery = Discovery(POLICY)
    one = Endpoint(id="a", host="h", port=1, state=EndpointState.READY)
    discovery.apply(Listed({"m": (one,), "n": ()}))
    discovery.review(0.0)
    assert {s.model: s.endpoints for s in discovery.collect(0.05, wall=9.0, epoch=1)} == {"m": (one,), "n": ()}
    discovery.apply(Listed({"m": (one,), "n": (one,)}))
    discovery.review(1.0)
    (changed,) = discovery.collect(1.05, wall=9.0, epoch=1)
    assert (changed.model, changed.generation, changed.sent_at) == ("n", 2, 9.0)


def discovery_of(**models: str) -> Discovery:
    discovery = Discovery(POLICY)
    discovery.apply(Listed({model: listed(names) for model, names in models.items()}))
    discovery.review(0.0)
    return discovery


def listed(names: str) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(id=n, host="h", port=ord(n), state=EndpointState.READY) for n in names)


def test_a_new_audience_is_told_everything_at_once_and_under_the_epoch_of_the_moment() -> None:
    discovery = discovery_of(m="a", n="b")
    discovery.collect(0.05, wall=9.0, epoch=1)
    assert discovery.collect(0.1, wall=9.0, epoch=1) == []
    discovery.renew()
    again = discovery.collect(0.1, wall=9.0, epoch=2)
    assert [(s.model, s.epoch, s.generation) for s in again] == [("m", 2, 1), ("n", 2, 1)]
    assert discovery.due_at() == 0.1 + POLICY.pace.interval


def test_only_models_of_which_something_changed_are_reviewed_and_those_held_back() -> None:
    discovery = discovery_of(m="abcd", n="b")
    discovery.apply(Listed({"m": listed("a"), "n": listed("b")}))
    (verdict,) = discovery.review(1.0)
    assert (verdict.model, [e.id for e in verdict.newly_held]) == ("m", ["b", "c", "d"])
    for _, endpoint in discovery.suspects():
        discovery.confirm_gone("m", endpoint)
    (verdict,) = discovery.review(1.1)
    assert [e.id for e in verdict.after] == ["a"]
    assert discovery.review(1.2) == []


def test_what_is_held_back_is_told_with_its_age_which_stands_still_while_the_source_is_stale() -> None:
    discovery = discovery_of(m="abcd")
    discovery.apply(Elapsed(0.0, -100.0))
    discovery.apply(Listed({"m": ()}))
    discovery.review(0.0)
    discovery.apply(Elapsed(0.5, -100.0))
    assert [(h.endpoint.id, h.seconds) for h in discovery.held("m")] == [(n, 0.5) for n in "abcd"]
    discovery.apply(Listed({"m": ()}, stale=True))
    discovery.apply(Elapsed(100.0, -100.0))
    assert [h.seconds for h in discovery.held("m")] == [0.5] * 4
    (snapshot,) = discovery.current(wall=9.0, epoch=1)
    assert snapshot.stale
    assert discovery.held("unknown") == []


def test_an_empty_model_that_is_listed_anew_is_published() -> None:
    discovery = discovery_of(m="a")
    discovery.apply(Listed({"m": listed("a"), "n": ()}))
    discovery.review(1.0)
    assert [s.model for s in discovery.collect(1.05, wall=9.0, epoch=1)] == ["m", "n"]


class Thorough(Discovery):
    """Looks at every model at each review, whether anything has touched it or not."""

    def review(self, now: float) -> list[Verdict]:
        self._touched = set(self._roster.models)
        return super().review(now)


STATES = st.sampled_from(list(EndpointState))
LISTINGS = st.dictionaries(st.sampled_from("abcd"), STATES).map(
    lambda pods: tuple(Endpoint(id=n, host="h", port=ord(n), state=pods[n]) for n in sorted(pods))
)
LISTED = st.builds(Listed, st.dictionaries(st.sampled_from(["m", "n", "o"]), LISTINGS), stale=st.booleans())
REPORTED = st.builds(
    lambda model, pod, sequence, state: Reported(report(pod, sequence, model=model, state=state, port=ord(pod))),
    st.sampled_from(["m", "n"]),
    st.sampled_from("abcd"),
    st.integers(1, 9),
    STATES,
)
STEPS = st.lists(st.tuples(st.one_of(LISTED, REPORTED), st.floats(0.0, 2.0), st.booleans()), max_size=30)


@given(STEPS)
def test_to_look_only_at_what_was_touched_misses_nothing(
    steps: list[tuple[Listed | Reported, float, bool]],
) -> None:
    now, both = 0.0, (Discovery(POLICY), Thorough(POLICY))
    for event, pause, proven in steps:
        now += pause
        seen = []
        for discovery in both:
            discovery.apply(Elapsed(now, -10.0))
            discovery.apply(event)
            verdicts = discovery.review(now)
            suspects = discovery.suspects()
            for suspect in suspects if proven else ():
                discovery.confirm_gone(*suspect)
            seen.append((verdicts, suspects, discovery.collect(now, wall=now, epoch=1), discovery.current(now, 1)))
        assert seen[0] == seen[1]


@given(st.lists(LISTED, min_size=1, max_size=8), st.lists(st.floats(0.0, 0.5), min_size=1, max_size=8))
def test_replicas_that_look_at_different_moments_end_with_what_was_listed_last(
    lists: list[Listed], pauses: list[float]
) -> None:
    last = Listed(lists[-1].endpoints)
    for turns in (1, len(pauses)):
        now, discovery = 0.0, Discovery(POLICY)
        for event in (*lists, last):
            discovery.apply(event)
            for pause in pauses[:turns]:
                now += pause
                discovery.apply(Elapsed(now, -10.0))
                discovery.review(now)
        for _ in range(100):
            now += 0.7
            discovery.apply(Elapsed(now, -10.0))
            discovery.review(now)
        shown = {
            snapshot.model: snapshot.endpoints for snapshot in discovery.current(now, 1) if snapshot.endpoints
        }
        assert shown == {model: pods for model, pods in last.endpoints.items() if pods}
