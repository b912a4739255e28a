"""Completion in the background: what mounted images lack, and not before they have started."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from copydesk.imagefetcher.fetch.agenda import Priority
from copydesk.imagefetcher.fetch.completion import Completion
from copydesk.imagefetcher.fetch.place import Place
from tests.fixtures.lazy_image import plain_image

DATA = plain_image(4).index.data
PLACES = tuple(Place("image", number, DATA) for number in range(4))


class Kept:
    """Content and fetcher in one: whatever is wanted is there at once."""

    def __init__(self) -> None:
        self.fetcher = self
        self.held: set[Place] = set()
        self.changed = asyncio.Event()

    def missing(self, places: Sequence[Place]) -> list[Place]:
        return [place for place in places if place not in self.held]

    def has_room(self, place: Place) -> bool:
        return True

    def want(self, place: Place, priority: Priority) -> asyncio.Future[bytes]:
        assert priority is Priority.BACKGROUND
        self.held.add(place)
        self.changed.set()
        done: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        done.set_result(b"")
        return done

    async def settled(self, places: Sequence[Place]) -> None:
        pass


@asynccontextmanager
async def completing(kept: Kept, delay: float) -> AsyncIterator[Completion]:
    content: Any = kept
    completion = Completion(content, 1e12, 2, lambda: PLACES, delay)
    task = asyncio.create_task(completion.run())
    try:
        yield completion
    finally:
        task.cancel()


async def until(condition: Callable[[], bool], changed: asyncio.Event) -> None:
    while not condition():
        changed.clear()
        await asyncio.wait_for(changed.wait(), 30)


async def test_all_that_mounted_images_lack_is_fetched() -> None:
    kept = Kept()
    async with completing(kept, 3_600.0):
        await until(lambda: kept.held == set(PLACES), kept.changed)


@pytest.mark.parametrize("delay", [0.0, 3_600.0])
async def test_a_new_image_has_the_link_for_itself_for_a_while(delay: float) -> None:
    kept = Kept()
    async with completing(kept, delay) as completion:
        completion.welcome()
        for _ in range(50):
            await asyncio.sleep(0)
        if delay:
            assert not kept.held
        else:
            await until(lambda: kept.held == set(PLACES), kept.changed)
