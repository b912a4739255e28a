"""Notices readers that go through an image from front to back, as who loads a model does. Pure."""

from __future__ import annotations

from collections import OrderedDict

from copydesk.imagefetcher.fetch.place import Place

NOTICED = 3
"""So many sectors behind one another are a streak; fewer are also seen where small files lie close together."""
LONGEST_LEAD = 4
"""Sectors ahead of the reader at most: what is fetched for nothing where a streak ends."""
REMEMBERED = 256


class Streaks:
    """Which sectors were wanted lately, and how long the streak is that ends at each."""

    def __init__(self) -> None:
        self._lengths: OrderedDict[Place, int] = OrderedDict()

    def lead(self, place: Place) -> list[Place]:
        """Note that a reader wants a sector; return those that it will want next, if it goes on as it has.

        The lead grows with the streak: one sector for the third, then two, up to LONGEST_LEAD.
        """
        length = self._note(place, self._lengths.get(self._beside(place, -1), 0) + 1)
        if length < NOTICED:
            return []
        ahead = []
        last = len(place.data.sectors) - 1
        for step in range(1, min(length - NOTICED + 1, LONGEST_LEAD) + 1):
            if place.number + step > last:
                break
            ahead.append(self._beside(place, step))
            self._note(ahead[-1], length + step)
        return ahead

    def _note(self, place: Place, length: int) -> int:
        longest = max(length, self._lengths.pop(place, 0))
        self._lengths[place] = longest
        while len(self._lengths) > REMEMBERED:
            self._lengths.popitem(last=False)
        return longest

    @staticmethod
    def _beside(place: Place, step: int) -> Place:
        return Place(place.image, place.number + step, place.data)
