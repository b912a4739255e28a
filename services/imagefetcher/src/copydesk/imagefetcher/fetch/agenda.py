"""What is to be fetched next: pure, knows neither time nor network."""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Iterator, Mapping

from copydesk.imagefetcher.fetch.place import Place


class Priority(enum.IntEnum):
    """Why a sector is wanted; the lower, the sooner it is fetched."""

    DEMAND = 0
    """A reader waits for it."""
    PREFETCH = 1
    """The recorded start-up will read it, or somebody asked to have the image ahead."""
    BACKGROUND = 2
    """The image is being completed, so that it no longer needs its registry."""


class Agenda:
    """Sectors that wait to be fetched: each once, first by priority, then in the order in which they came."""

    def __init__(self) -> None:
        self._waiting: dict[Priority, OrderedDict[str, Place]] = {priority: OrderedDict() for priority in Priority}

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def __iter__(self) -> Iterator[tuple[Priority, Place]]:
        for priority, places in self._waiting.items():
            for place in places.values():
                yield priority, place

    def add(self, place: Place, priority: Priority) -> None:
        """Put a sector on the agenda; one that is there already moves up if it is more urgent now, never down."""
        for other in Priority:
            if place.digest not in self._waiting[other]:
                continue
            if other <= priority:
                return
            del self._waiting[other][place.digest]
        self._waiting[priority][place.digest] = place

    def take(self, free: Mapping[Priority, int], most: int) -> tuple[Priority, list[Place]] | None:
        """Take off the agenda what is fetched next: one sector, or up to `most` that one request can bring.

        `free` says how many more requests of each priority may run. A reader's sector is fetched alone, so that it
        does not wait for others; of the rest, sectors that lie behind one another go together, whichever of them
        is next. None if nothing may be fetched now.
        """
        for priority in Priority:
            places = self._waiting[priority]
            if not places or free.get(priority, 0) <= 0:
                continue
            _, place = places.popitem(last=False)
            run = [place]
            if priority is not Priority.DEMAND:
                self._extend(run, places, most)
            return priority, run
        return None

    def drop(self, priority: Priority) -> list[Place]:
        """Take everything of `priority` off the agenda."""
        dropped = list(self._waiting[priority].values())
        self._waiting[priority].clear()
        return dropped

    @staticmethod
    def _extend(run: list[Place], places: OrderedDict[str, Place], most: int) -> None:
        while len(run) < most:
            number = run[-1].number + 1
            if number >= len(run[-1].data.sectors):
                return
            following = places.get(run[-1].data.sectors[number].plain_digest)
            if following is None or not run[-1].precedes(following):
                return
            run.append(places.pop(following.digest))
