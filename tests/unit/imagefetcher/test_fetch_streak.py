"""Readers that go through an image from front to back are noticed, others are not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from copydesk.imagefetcher.fetch.place import Place
from copydesk.imagefetcher.fetch.streak import LONGEST_LEAD, NOTICED, REMEMBERED, Streaks
from tests.fixtures.lazy_image import plain_image

COUNT = 24
DATA = plain_image(COUNT).index.data


def place(number: int, image: str = "image") -> Place:
    return Place(image, number, DATA)


def numbers(places: list[Place]) -> list[int]:
    return [each.number for each in places]


def test_the_lead_begins_with_the_third_sector_and_grows_up_to_a_limit() -> None:
    streaks = Streaks()
    leads = [len(streaks.lead(place(number))) for number in range(12)]
    assert leads[: NOTICED + 3] == [0, 0, 1, 2, 3, 4]
    assert max(leads) == LONGEST_LEAD


def test_a_reader_who_finds_what_was_fetched_ahead_is_still_on_its_streak() -> None:
    streaks = Streaks()
    for number in range(3):
        ahead = streaks.lead(place(number))
    assert numbers(ahead) == [3]
    assert numbers(streaks.lead(place(4)))[0] == 5  # sector 3 was cached, and its read never came here


def test_two_readers_far_apart_are_told_apart_and_images_too() -> None:
    streaks = Streaks()
    for step in range(3):
        streaks.lead(place(step))
        assert not streaks.lead(place(step, "other")) or step == 2
        streaks.lead(place(12 + step))
    assert numbers(streaks.lead(place(3)))[0] == 4
    assert numbers(streaks.lead(place(15)))[0] == 16


def test_the_last_sector_has_nothing_ahead() -> None:
    streaks = Streaks()
    for number in range(COUNT):
        ahead = streaks.lead(place(number))
        assert all(number < each < COUNT for each in numbers(ahead))
    assert ahead == []


@given(st.lists(st.integers(0, COUNT - 1), max_size=60))
def test_what_leads_on_follows_at_least_two_sectors_that_were_wanted_or_led_to(wanted: list[int]) -> None:
    streaks = Streaks()
    seen: set[int] = set()
    for number in wanted:
        ahead = streaks.lead(place(number))
        assert len(ahead) <= LONGEST_LEAD
        assert numbers(ahead) == list(range(number + 1, number + 1 + len(ahead)))
        assert not ahead or {number - 1, number - 2} <= seen
        seen |= {number, *numbers(ahead)}


def test_memory_is_bounded() -> None:
    streaks = Streaks()
    for number in range(3 * REMEMBERED):
        streaks.lead(place(0, f"image {number}"))
    assert len(streaks._lengths) == REMEMBERED
