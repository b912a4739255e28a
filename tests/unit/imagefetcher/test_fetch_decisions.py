"""What is fetched next, from whom, and how fast: decisions on plain data."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.imagefetcher.fetch.agenda import Agenda, Priority
from copydesk.imagefetcher.fetch.pace import Pace
from copydesk.imagefetcher.fetch.place import Place
from copydesk.imagefetcher.fetch.source import Source, SourceKind
from copydesk.imagefetcher.fetch.standing import LONGEST_REST_S, PEERS_ASKED, Standing, in_order
from tests.fixtures.lazy_image import plain_image

DATA = plain_image(12, sector_size=64 << 10).index.data
FREE = dict.fromkeys(Priority, 100)
PRIORITIES = st.sampled_from(Priority)


def place(number: int, image: str = "image") -> Place:
    return Place(image, number, DATA)


@dataclass(frozen=True)
class Named:
    name: str
    kind: SourceKind

    async def fetch(self, run: Sequence[Place]) -> list[bytes]:
        raise AssertionError("only ordered, never asked")


@given(st.lists(st.tuples(st.integers(0, 11), PRIORITIES)))
def test_each_sector_is_taken_once_at_the_most_urgent_priority_that_was_asked(
    wanted: list[tuple[int, Priority]],
) -> None:
    agenda = Agenda()
    for number, priority in wanted:
        agenda.add(place(number), priority)
    taken: list[tuple[Priority, int]] = []
    while (step := agenda.take(FREE, 4)) is not None:
        taken += [(step[0], each.number) for each in step[1]]
    most_urgent = {number: min(p for n, p in wanted if n == number) for number, _ in wanted}
    assert {number: priority for priority, number in taken} == most_urgent
    assert len(taken) == len(most_urgent)
    assert [priority for priority, _ in taken] == sorted(priority for priority, _ in taken)


@given(st.lists(st.integers(0, 11), unique=True), st.integers(1, 5), PRIORITIES)
def test_a_run_lies_behind_one_another_and_a_reader_s_sector_goes_alone(
    numbers: list[int], most: int, priority: Priority
) -> None:
    agenda = Agenda()
    for number in numbers:
        agenda.add(place(number), priority)
    while (step := agenda.take(FREE, most)) is not None:
        run = step[1]
        assert len(run) <= (1 if priority is Priority.DEMAND else most)
        assert all(before.precedes(after) for before, after in itertools.pairwise(run))


def test_sectors_of_different_images_do_not_go_together() -> None:
    agenda = Agenda()
    agenda.add(place(0, "one"), Priority.PREFETCH)
    agenda.add(place(1, "two"), Priority.PREFETCH)
    assert agenda.take(FREE, 4) == (Priority.PREFETCH, [place(0, "one")])


def test_without_a_free_request_a_priority_waits_and_a_lower_one_may_go() -> None:
    agenda = Agenda()
    agenda.add(place(0), Priority.DEMAND)
    agenda.add(place(5), Priority.BACKGROUND)
    assert agenda.take({Priority.BACKGROUND: 1}, 4) == (Priority.BACKGROUND, [place(5)])
    assert agenda.take({Priority.PREFETCH: 1}, 4) is None
    assert agenda.take({Priority.DEMAND: 1}, 4) == (Priority.DEMAND, [place(0)])


def test_what_is_given_up_is_gone_and_the_rest_stays() -> None:
    agenda = Agenda()
    agenda.add(place(0), Priority.BACKGROUND)
    agenda.add(place(1), Priority.DEMAND)
    assert agenda.drop(Priority.BACKGROUND) == [place(0)]
    assert list(agenda) == [(Priority.DEMAND, place(1))]


SOURCES = st.lists(st.sampled_from(SourceKind), max_size=8).map(
    lambda kinds: [Named(f"{number}", kind) for number, kind in enumerate(kinds)]
)


@given(SOURCES, st.data())
def test_sources_are_asked_peers_first_the_registry_last_and_nobody_twice(
    sources: list[Source], data: st.DataObject
) -> None:
    tired = data.draw(st.sets(st.sampled_from([each.name for each in sources]))) if sources else set()
    shares = data.draw(st.lists(st.floats(0, 1), min_size=len(sources), max_size=len(sources)))
    standings = {name: Standing(1, 100.0) for name in tired}
    order = in_order(sources, standings, 50.0, shares)
    assert len(set(order)) == len(order)
    assert sum(each.kind is SourceKind.PEER for each in order) <= PEERS_ASKED
    assert all(each.name not in tired for each in order if each.kind is SourceKind.PEER)
    assert {each for each in sources if each.kind is not SourceKind.PEER} <= set(order)
    fit = [each for each in order if each.name not in tired]
    assert order[: len(fit)] == fit
    assert [each.kind for each in fit] == sorted(each.kind for each in fit)


def test_mirrors_keep_their_order() -> None:
    mirrors = [Named("first", SourceKind.MIRROR), Named("second", SourceKind.MIRROR)]
    assert in_order(mirrors, {}, 0.0, [0.9, 0.1]) == mirrors


def test_a_source_that_fails_again_rests_longer_up_to_a_limit_and_is_fit_again_after() -> None:
    standing = Standing()
    rests = []
    for _ in range(12):
        standing = standing.after_failure(1000.0, 1.0)
        rests.append(standing.rests_until - 1000.0)
    assert rests == sorted(rests)
    assert rests[0] == 1.0
    assert rests[-1] == LONGEST_REST_S
    peer = Named("peer", SourceKind.PEER)
    assert in_order([peer], {"peer": standing}, 1000.0, [0.5]) == []
    assert in_order([peer], {"peer": standing}, standing.rests_until, [0.5]) == [peer]


@given(st.lists(st.tuples(st.integers(1, 10_000), st.floats(0, 5)), max_size=40))
def test_the_pace_is_never_faster_than_its_rate_but_for_the_first_second(steps: list[tuple[int, float]]) -> None:
    pace, now, done = Pace(1000.0, 0.0), 0.0, 0
    for amount, idle in steps:
        now += idle
        now += pace.delay(amount, now)
        assert done <= 1000.0 * now + 1000.0 + 1e-6
        done += amount


def test_an_idle_pace_saves_up_no_more_than_a_second() -> None:
    pace = Pace(1000.0, 0.0)
    assert pace.delay(1000, 3600.0) == 0.0
    assert pace.delay(1000, 3600.0) == 0.0
    assert pace.delay(1, 3600.0) == pytest.approx(1.0)
