"""When snapshots go out."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from copydesk.common.messages import Endpoint, EndpointState
from copydesk.eds.schedule import Pace, Publication, due_at, published, revise

PACE = Pace(debounce=0.05, interval=2.0)


def pods(*names: str, state: EndpointState = EndpointState.READY) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(id=name, host="h", port=1, state=state) for name in names)


def sent(*names: str, at: float) -> Publication:
    return published(revise(None, pods(*names), at), at)


def test_the_first_listing_goes_out_after_the_debounce_as_generation_one() -> None:
    first = revise(None, pods("a"), 10.0)
    assert due_at(first, PACE) == 10.05
    assert first.generation == 1


def test_without_change_the_snapshot_is_repeated_at_the_interval_under_the_same_generation() -> None:
    again = revise(sent("a", at=10.0), pods("a"), 11.0)
    assert due_at(again, PACE) == 12.0
    assert again.generation == 1


def test_changes_are_gathered_from_the_first_of_them() -> None:
    publication = sent("a", at=10.0)
    for at in (11.0, 11.03, 11.045):
        publication = revise(publication, pods("a", f"b{at}"), at)
    assert due_at(publication, PACE) == 11.05
    assert publication.generation == 4


def test_a_change_of_state_goes_out_at_once() -> None:
    publication = revise(sent("a", at=10.0), pods("a", state=EndpointState.DRAINING), 11.0)
    assert due_at(publication, PACE) == 11.0


def test_even_changes_of_state_keep_the_debounce_from_the_last_snapshot() -> None:
    publication = revise(sent("a", at=10.0), pods("a", state=EndpointState.DRAINING), 10.01)
    assert due_at(publication, PACE) == 10.05


@given(st.lists(st.tuples(st.floats(0.0, 3.0), st.sampled_from(["a", "ab", "abc"])), min_size=1, max_size=40))
def test_a_change_never_waits_longer_than_the_debounce_and_snapshots_keep_their_distance(
    steps: list[tuple[float, str]],
) -> None:
    publication: Publication | None = None
    now, last, sends = 0.0, "", []
    for pause, names in steps:
        until = now + pause
        while publication is not None and due_at(publication, PACE) <= until:
            now = max(now, due_at(publication, PACE))
            publication = published(publication, now)
            sends.append(now)
        now = until
        publication = revise(publication, pods(*names), now)
        if names != last:
            assert due_at(publication, PACE) <= now + PACE.debounce
        assert due_at(publication, PACE) <= now + PACE.interval
        last = names
    assert all(later - earlier >= 0.049 for earlier, later in itertools.pairwise(sends))
