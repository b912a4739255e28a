"""Stop strings in a text that comes in pieces."""

from __future__ import annotations

from collections.abc import Sequence


class StopStrings:
    """Passes a text on up to the first stop string, which it leaves out.

    The first is the one that is complete first, and the longest of those that are complete at once: so the result
    does not depend on the pieces. Text that may be the beginning of a stop string is held back. The search is
    Knuth, Morris and Pratt's (SIAM J. Comput. 6(2), 1977), for each of the strings.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [(stop, _borders(stop)) for stop in dict.fromkeys(stops)]
        self._matched = [0] * len(self._stops)
        self._held = ""
        self.found: str | None = None

    def push(self, text: str) -> str:
        """Take more text, and return what is certain now; nothing more once a stop string was found."""
        if not self._stops:
            return text
        if self.found is not None:
            return ""
        for place, character in enumerate(text, 1):
            found = self._step(character)
            if found:
                self.found = found
                return self._release(text[:place], len(found))
        return self._release(text, max(self._matched, default=0))

    def finish(self) -> str:
        """The text that was held back, once there is no more to come."""
        return self._release("", 0) if self.found is None else ""

    def _release(self, text: str, kept: int) -> str:
        whole = self._held + text
        border = len(whole) - kept
        self._held = whole[border:]
        return whole[:border]

    def _step(self, character: str) -> str:
        """Take one character, and return the stop string that it completes, if any."""
        found = ""
        for index, (stop, borders) in enumerate(self._stops):
            matched = self._matched[index]
            while matched and stop[matched] != character:
                matched = borders[matched - 1]
            self._matched[index] = matched = matched + (stop[matched] == character)
            if matched == len(stop) and matched > len(found):
                found = stop
        return found


def _borders(stop: str) -> list[int]:
    """For each beginning of `stop`: the length of the longest one that it ends with, itself aside."""
    borders = [0] * len(stop)
    length = 0
    for place in range(1, len(stop)):
        while length and stop[place] != stop[length]:
            length = borders[length - 1]
        length += stop[place] == stop[length]
        borders[place] = length
    return borders
