"""What is shown of discovery: snapshots judged as a gateway judges them, and changes told once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from copydesk.cli.discovery.picture import HeldBack, Picture
from copydesk.common.messages import Endpoint, EndpointsSnapshot, EndpointState


def snapshot(
    ids: str = "a", *, model: str = "m", epoch: int = 1, generation: int = 1, stale: bool = False
) -> EndpointsSnapshot:
    pods = tuple(Endpoint(id=pod, host="h", port=1, state=EndpointState.READY, started_at=90.0) for pod in ids)
    return EndpointsSnapshot(
        model=model, epoch=epoch, generation=generation, sent_at=99.5, endpoints=pods, stale=stale
    )


def shown(picture: Picture) -> str:
    return "".join(row.id for rows in picture.rows(100.0) for row in rows.endpoints)


def test_a_repeated_snapshot_is_no_change_and_a_new_one_is_told_once() -> None:
    picture = Picture("nats")
    picture.take(snapshot("a"), 0.0)
    assert picture.changes() == ["m"]
    picture.take(snapshot("a"), 2.0)
    assert picture.changes() == []
    picture.take(snapshot("ab", generation=2), 2.5)
    picture.take(snapshot("abc", generation=3), 2.6)
    assert picture.changes() == ["m"]
    assert picture.changes() == []
    assert shown(picture) == "abc"


def test_that_a_publisher_has_lost_its_source_is_a_change() -> None:
    picture = Picture("nats")
    picture.take(snapshot(), 0.0)
    picture.changes()
    picture.take(snapshot(stale=True), 2.0)
    assert picture.changes() == ["m"]
    assert picture.rows(100.0)[0].stale


def test_a_paused_publisher_that_wakes_up_is_not_shown() -> None:
    picture = Picture("nats")
    picture.take(snapshot("new", epoch=2), 0.0)
    picture.changes()
    picture.take(snapshot("old", epoch=1, generation=99), 1.0)
    assert (picture.changes(), shown(picture)) == ([], "new")


def test_only_what_was_asked_for_is_shown_and_what_is_missing_is_named() -> None:
    picture = Picture("nats", ["m", "x"])
    picture.take(snapshot("a", model="other"), 0.0)
    assert (picture.changes(), picture.missing, picture.complete) == ([], ["m", "x"], False)
    picture.take(snapshot("b", model="m"), 0.0)
    picture.take(snapshot("c", model="x"), 0.0)
    assert (shown(picture), picture.complete) == ("bc", True)
    assert picture.models == ["m", "other", "x"]


def test_ages_are_as_of_the_moment_and_a_start_that_is_not_known_has_none() -> None:
    picture = Picture("nats")
    picture.take(snapshot(), 0.0)
    (rows,) = picture.rows(100.0)
    assert (rows.sent_age_s, rows.endpoints[0].age_s) == (0.5, 10.0)
    assert rows.counts == {"ready": 1, "warming": 0, "draining": 0}
    unborn = Endpoint(id="z", host="h", port=1, state=EndpointState.WARMING)
    picture.take(EndpointsSnapshot(model="m", epoch=1, generation=2, sent_at=101.0, endpoints=(unborn,)), 0.0)
    (rows,) = picture.rows(100.0)
    assert (rows.sent_age_s, rows.endpoints[0].age_s) == (0.0, None)


def test_that_a_loss_is_held_back_is_a_change_and_that_it_gets_older_is_none() -> None:
    picture = Picture("nats")
    picture.take(snapshot("ab"), 0.0)
    picture.changes()
    picture.hold({"m": {"b": HeldBack(seconds=1.0, limit_seconds=60.0)}})
    assert picture.changes() == ["m"]
    picture.hold({"m": {"b": HeldBack(seconds=2.0, limit_seconds=60.0)}})
    assert picture.changes() == []
    assert [row.held and row.held.seconds for row in picture.rows(100.0)[0].endpoints] == [None, 2.0]
    picture.hold({})
    assert picture.changes() == ["m"]


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4), st.booleans()), max_size=20))
def test_whoever_looks_at_each_change_has_seen_what_is_in_force(heard: list[tuple[int, int, bool]]) -> None:
    picture, seen = Picture("nats"), ""
    for epoch, generation, looks in heard:
        picture.take(snapshot(f"{epoch}-{generation}"[::2], epoch=epoch, generation=generation), 0.0)
        if looks and picture.changes():
            seen = shown(picture)
        elif looks:
            assert seen == shown(picture)
