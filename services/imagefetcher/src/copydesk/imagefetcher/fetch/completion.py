"""Fetching ahead: the start-up's sectors at once, the rest of an image in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import islice

from copydesk.common.telemetry import get_logger
from copydesk.imagefetcher.fetch.agenda import Priority
from copydesk.imagefetcher.fetch.content import Content
from copydesk.imagefetcher.fetch.errors import FetchError
from copydesk.imagefetcher.fetch.pace import Pace
from copydesk.imagefetcher.fetch.place import Place

REST_S = 30.0
"""How long completion rests after a failure, or while the cache is full."""

_log = get_logger(__name__)


def prefetch(content: Content, places: Sequence[Place]) -> int:
    """Put what is missing of `places` on the agenda, ahead of the background; return how many those are."""
    missing = content.missing(places)
    for place in missing:
        content.fetcher.want(place, Priority.PREFETCH)
    return len(missing)


class Completion:
    """Fetches what mounted images still lack, at `rate` bytes a second, and never at the cost of what is cached.

    `mounted` returns the sectors of all images to be completed, in the order in which to do it. A node that has
    all of an image needs no registry any more. For `delay` seconds after each new image it rests: a container that
    starts has the link for itself then.
    """

    def __init__(
        self, content: Content, rate: float, run: int, mounted: Callable[[], Sequence[Place]], delay: float
    ) -> None:
        self._content = content
        self._rate = rate
        self._run = run
        self._mounted = mounted
        self._delay = delay
        self._begins_at = 0.0
        self._wake = asyncio.Event()
        self.paused = False

    def wake(self) -> None:
        """Look again, as there may be more to do."""
        self._wake.set()

    def welcome(self) -> None:
        """Look again in a while, as there is a new image."""
        self._begins_at = asyncio.get_running_loop().time() + self._delay
        self._wake.set()

    async def run(self) -> None:
        """Complete images for ever."""
        loop = asyncio.get_running_loop()
        pace = Pace(self._rate, loop.time())
        while True:
            self._wake.clear()
            if (early := self._begins_at - loop.time()) > 0.0:
                await self._rest(early)
                continue
            batch = self._batch()
            if not batch:
                await self._rest(None)
                continue
            await asyncio.sleep(pace.delay(sum(place.sector.length for place in batch), loop.time()))
            if not self.paused and not await self._fetch(batch):
                await self._rest(REST_S)

    def _batch(self) -> list[Place]:
        if self.paused:
            return []
        missing = iter(self._content.missing(self._mounted()))
        batch: list[Place] = []
        for place in islice(missing, self._run):
            if (batch and not batch[-1].precedes(place)) or not self._content.has_room(place):
                break
            batch.append(place)
        return batch

    async def _fetch(self, batch: list[Place]) -> bool:
        futures = [self._content.fetcher.want(place, Priority.BACKGROUND) for place in batch]
        try:
            await asyncio.gather(*map(asyncio.shield, futures))
        except FetchError as error:
            _log.info("completion_rests", error=str(error), seconds=REST_S)
            return False
        await self._content.fetcher.settled(batch)
        return not self._content.missing(batch)

    async def _rest(self, seconds: float | None) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return
