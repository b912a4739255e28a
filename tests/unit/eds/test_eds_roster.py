"""Who is there: the reducer over reports, lists and time."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.common.messages import Endpoint, EndpointState, LoadReport
from copydesk.eds import roster as roster_module
from copydesk.eds.roster import Dropped, Elapsed, Event, Listed, Reported, Roster, Step, listing, reduce
from copydesk.eds.silence import LONGEST_RETURN

TIMEOUT = 3.0


def report(pod: str = "p1", sequence: int = 1, started_at: float = 100.0, **changes: Any) -> LoadReport:
    fields: dict[str, Any] = {
        "model": "gec-en",
        "pod": pod,
        "sequence": sequence,
        "sent_at": 0.0,
        "started_at": started_at,
        "host": "10.0.0.1",
        "port": 9000,
        "state": EndpointState.READY,
        "running": 0,
        "queued": 0,
        "capacity": 8,
        "step_ms": 5.0,
        "digest": "sha256:x",
    }
    return LoadReport(**{**fields, **changes})


class Story:
    """A roster told events one by one, with a bus connected for long unless said otherwise."""

    def __init__(self, settle: float = 0.0) -> None:
        self.roster = Roster(timeout=TIMEOUT, settle=settle)
        self.now = 0.0
        self.connected_since: float | None = -LONGEST_RETURN
        self.tell(Elapsed(0.0, self.connected_since))

    def tell(self, event: Event) -> Step:
        step = reduce(self.roster, event)
        self.roster = step.roster
        return step

    def hear(self, *args: Any, **kwargs: Any) -> Step:
        return self.tell(Reported(report(*args, **kwargs)))

    def wait(self, seconds: float, *pods: str) -> None:
        """Let time pass in ticks; `pods` report at each of them."""
        for _ in range(round(seconds * 10)):
            self.now = round(self.now + 0.1, 6)
            self.tell(Elapsed(self.now, self.connected_since))
            for pod in pods:
                self.hear(pod, sequence=round(self.now * 10) + 1000)

    def ids(self, model: str = "gec-en") -> list[str]:
        return [endpoint.id for endpoint in listing(self.roster, model)]


def test_a_pod_is_listed_from_its_first_report_with_what_it_said() -> None:
    story = Story()
    assert story.hear(zone="a", state=EndpointState.WARMING).changed
    assert listing(story.roster, "gec-en") == (
        Endpoint(id="p1", host="10.0.0.1", port=9000, state=EndpointState.WARMING, zone="a", started_at=100.0),
    )


def test_a_report_that_says_nothing_new_of_the_endpoint_is_no_change() -> None:
    story = Story()
    story.hear(sequence=1)
    assert not story.hear(sequence=2, running=7).changed
    assert story.hear(sequence=3, state=EndpointState.DRAINING).changed


@pytest.mark.parametrize("sequence", [1, 5])
def test_a_late_or_repeated_report_is_dropped(sequence: int) -> None:
    story = Story()
    story.hear(sequence=5)
    step = story.hear(sequence=sequence, state=EndpointState.DRAINING)
    assert step.dropped is Dropped.STALE
    assert listing(story.roster, "gec-en")[0].state is EndpointState.READY


def test_a_new_start_replaces_the_old_although_its_sequence_begins_anew() -> None:
    story = Story()
    story.hear(sequence=500, started_at=100.0)
    assert story.hear(sequence=1, started_at=200.0, port=9001).changed
    assert story.hear(sequence=501, started_at=100.0).dropped is Dropped.STALE
    assert [endpoint.port for endpoint in listing(story.roster, "gec-en")] == [9001]


@pytest.mark.parametrize(
    "changes", [{"model": "a.b"}, {"model": "*"}, {"pod": ""}, {"port": 0}, {"port": 65536}, {"host": ""}]
)
def test_a_report_that_makes_no_sense_is_dropped(changes: dict[str, Any]) -> None:
    story = Story()
    assert story.tell(Reported(report(**changes))).dropped is Dropped.INVALID
    assert story.roster.models == frozenset()


def test_a_silent_pod_is_removed_after_the_timeout_and_its_model_stays_known() -> None:
    story = Story()
    story.hear()
    story.wait(2.9)
    assert story.ids() == ["p1"]
    story.wait(0.2)
    assert story.ids() == []
    assert story.roster.models == {"gec-en"}


def test_a_reporting_pod_outlives_a_silent_one() -> None:
    story = Story()
    story.hear("p1")
    story.hear("p2")
    story.wait(4, "p2")
    assert story.ids() == ["p2"]


def test_age_is_counted_from_receipt_whatever_the_senders_clock_says() -> None:
    story = Story()
    story.hear("future", sent_at=1e12, started_at=1e12)
    story.hear("past", sent_at=-1e9, started_at=-1e9)
    story.wait(2.9)
    assert story.ids() == ["future", "past"]


def test_a_replayed_report_raises_no_dead_pod_but_a_restart_does_even_with_its_clock_set_back() -> None:
    story = Story()
    story.hear(sequence=9, started_at=100.0)
    story.wait(3.2)
    assert story.hear(sequence=9, started_at=100.0).dropped is Dropped.STALE
    assert story.hear(sequence=1, started_at=50.0).dropped is None
    assert story.ids() == ["p1"]


def test_a_pod_that_was_only_unheard_is_back_with_its_next_report() -> None:
    story = Story()
    story.hear(sequence=9)
    story.wait(3.2)
    assert story.hear(sequence=10).changed
    assert story.ids() == ["p1"]


def test_forgotten_pods_are_not_remembered_for_ever() -> None:
    story = Story()
    story.hear("old")
    story.wait(70)
    story.hear("new")
    story.wait(4)
    assert set(story.roster.forgotten) == {("gec-en", "new")}


def test_silence_does_not_count_while_the_bus_is_away_nor_until_the_pods_are_back_too() -> None:
    story = Story()
    story.hear()
    story.wait(2)
    story.connected_since = None
    story.wait(600)
    assert story.ids() == ["p1"]
    story.connected_since = story.now
    story.wait(LONGEST_RETURN + 0.9)
    assert story.ids() == ["p1"]
    story.wait(0.3)
    assert story.ids() == []


def test_a_reconnect_between_two_ticks_starts_the_grace_anew() -> None:
    story = Story()
    story.hear()
    story.wait(2.5)
    story.connected_since = story.now + 0.05
    story.wait(3)
    assert story.ids() == ["p1"]


def test_a_process_that_was_frozen_does_not_take_its_own_pause_for_the_pods_silence() -> None:
    story = Story()
    story.hear()
    story.now += 300
    story.wait(0.1)
    assert story.ids() == ["p1"]


def test_nothing_is_settled_before_the_bus_was_connected_for_a_while() -> None:
    story = Story(settle=1.0)
    story.roster = Roster(timeout=TIMEOUT, settle=1.0)
    story.connected_since = None
    story.wait(5)
    assert not story.roster.settled
    story.connected_since = story.now
    story.wait(0.9)
    assert not story.roster.settled
    story.wait(0.2)
    assert story.roster.settled


def static(*ids: str) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(id=pod, host="h", port=1, state=EndpointState.READY) for pod in ids)


def test_a_list_is_the_whole_truth_and_settles_at_once() -> None:
    roster = reduce(Roster(timeout=TIMEOUT, settle=9), Listed({"m": static("b", "a"), "n": static("c")})).roster
    assert roster.settled
    assert [endpoint.id for endpoint in listing(roster, "m")] == ["a", "b"]
    step = reduce(roster, Listed({"m": static("a")}))
    assert step.changed
    assert listing(step.roster, "n") == ()
    assert step.roster.models == {"m", "n"}
    assert not reduce(step.roster, Listed({"m": static("a")})).changed


REPORTS = st.builds(
    report,
    pod=st.sampled_from(["a", "b", "c"]),
    sequence=st.integers(1, 5),
    started_at=st.sampled_from([1.0, 2.0]),
)


@given(st.lists(REPORTS, min_size=1, max_size=30), st.randoms(use_true_random=False))
def test_any_order_and_repetition_of_the_same_reports_gives_the_same_snapshot(
    reports: list[LoadReport], chance: random.Random
) -> None:
    # What a pod said is a function of its place in order, as it is for a real one.
    said = [
        report(r.pod, r.sequence, r.started_at, port=1000 + 10 * int(r.started_at) + r.sequence) for r in reports
    ]
    again = said + chance.choices(said, k=len(said))
    chance.shuffle(again)
    one, other = Story(), Story()
    for each in said:
        one.tell(Reported(each))
    for each in again:
        other.tell(Reported(each))
    last = {r.pod: r for r in sorted(said, key=lambda r: (r.started_at, r.sequence))}
    assert listing(one.roster, "gec-en") == listing(other.roster, "gec-en")
    assert [(e.id, e.port) for e in listing(one.roster, "gec-en")] == [
        (pod, last[pod].port) for pod in sorted(last)
    ]


@given(st.lists(st.one_of(REPORTS.map(Reported), st.floats(0.01, 2.0), st.booleans()), max_size=60))
def test_a_pod_heard_within_the_timeout_is_listed_whatever_else_happens(steps: list[Any]) -> None:
    story = Story()
    heard: dict[str, float] = {}
    for step in steps:
        if isinstance(step, Reported):
            if story.tell(step).dropped is None:
                heard[step.report.pod] = story.now
        elif isinstance(step, bool):
            story.connected_since = story.now if step else None
        else:
            story.now += step
            story.tell(Elapsed(story.now, story.connected_since))
    recent = {pod for pod, at in heard.items() if story.now - at < TIMEOUT}
    assert recent <= set(story.ids())


def test_invented_models_and_pods_take_bounded_room_and_none_from_those_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(roster_module, "MAX_MODELS", 3)
    monkeypatch.setattr(roster_module, "MAX_PODS", 5)
    story = Story()
    story.hear("real")
    for number in range(20):
        story.hear("invented", model=f"m{number}")
        story.hear(f"invented-{number}")
    assert len(story.roster.models) == 3
    assert sum(len(words) for words in story.roster.words.values()) == 5
    assert story.hear("another", model="m19").dropped is Dropped.TOO_MANY
    assert story.hear("real", sequence=2).dropped is None
    story.wait(TIMEOUT + 0.2, "real")
    assert story.hear("new").dropped is None
    assert story.ids() == ["new", "real"]
