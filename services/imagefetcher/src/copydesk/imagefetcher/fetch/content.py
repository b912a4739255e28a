"""Sectors for readers, from disk, memory or elsewhere: what the device asks, from its own threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Sequence

from copydesk.imagefetcher.fetch.agenda import Priority
from copydesk.imagefetcher.fetch.errors import FetchError
from copydesk.imagefetcher.fetch.fetcher import Fetcher, Terms
from copydesk.imagefetcher.fetch.place import Place
from copydesk.imagefetcher.fetch.source import Source
from copydesk.imagefetcher.fetch.streak import Streaks
from copydesk.imagefetcher.metrics import Metrics
from copydesk.imagefetcher.store.recent import RecentSectors
from copydesk.imagefetcher.store.sectors import SectorStore

OnContents = Callable[[Sequence[bytes] | None], None]
"""Is given the whole sectors that were asked for, in their order, or None if one of them cannot be had."""


class Content:
    """The store, what did not fit into it, and a fetcher for the rest.

    `hot` returns the sectors of the recorded start-up of a sector's image. They lie behind one another whoever
    reads them, so nothing is fetched ahead of who does.
    """

    def __init__(
        self,
        store: SectorStore,
        recent: RecentSectors,
        terms: Terms,
        sources_of: Callable[[Place], Sequence[Source]],
        metrics: Metrics,
        hot: Callable[[Place], Container[int]] = lambda _: (),
    ) -> None:
        self._hot = hot
        self._streaks = Streaks()
        self._store = store
        self._recent = recent
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self.fetcher = Fetcher(terms, sources_of, self._held, self._keep, metrics)

    def cached(self, place: Place, start: int, stop: int) -> bytes | None:
        """Return bytes `start` to `stop` of a sector if they are here; from any thread."""
        content = self._store.read(place.digest, start, stop)
        if content is None and (kept := self._recent.get(place.digest)) is not None:
            content = kept[start:stop]
        self._metrics.missed() if content is None else self._metrics.hit()
        return content

    def fetch(self, places: Sequence[Place], then: OnContents) -> None:
        """Fetch sectors that a reader waits for, and call `then` on the event loop; from any thread."""
        self._loop.call_soon_threadsafe(self._fetch, places, then)

    def missing(self, places: Sequence[Place]) -> list[Place]:
        """Return those that are not on disk."""
        return [place for place in places if place.digest not in self._store]

    def has_room(self, place: Place) -> bool:
        """Whether a sector can be kept without evicting another."""
        return self._store.has_room(place.sector.plain_length)

    def _fetch(self, places: Sequence[Place], then: OnContents) -> None:
        futures = [self.fetcher.want(place, Priority.DEMAND) for place in places]
        for place in places:
            self._run_ahead(place)
        gathered = asyncio.gather(*map(asyncio.shield, futures))
        gathered.add_done_callback(lambda done: then(self._outcome(done)))

    def _run_ahead(self, place: Place) -> None:
        hot = self._hot(place)
        if place.number in hot:
            return
        for ahead in self.missing([each for each in self._streaks.lead(place) if each.number not in hot]):
            self.fetcher.want(ahead, Priority.PREFETCH)

    def _outcome(self, done: asyncio.Future[list[bytes]]) -> list[bytes] | None:
        try:
            return done.result()
        except (FetchError, asyncio.CancelledError):
            self._metrics.read_failed()
            return None

    def _held(self, place: Place) -> bytes | None:
        if place.digest not in self._store:
            return self._recent.get(place.digest)
        return self._store.read(place.digest, 0, place.sector.plain_length)

    def _keep(self, digest: str, content: bytes) -> None:
        if not self._store.put(digest, content):
            self._recent.put(digest, content)
