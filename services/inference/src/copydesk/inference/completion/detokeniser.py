"""From tokens, as they come, to text that no later token changes."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

REPLACEMENT = "\ufffd"

_LONG = 16
"""Tokens: a character has four at the most, so that with so many some are of characters that stay broken."""
_BYTES = 4
"""The most that a character has in UTF-8, and so the most tokens."""


def last_character(decode: Callable[[Sequence[int]], str], tokens: Sequence[int]) -> Sequence[int]:
    """The last tokens that decode to something whole, which a text needs to know of those that it continues."""
    for count in range(1, _BYTES + 1):
        last = tokens[-count:]
        if REPLACEMENT not in decode(last):
            return last
    return ()


class Detokeniser:
    """Turns one token after another into the text that it adds.

    A token may be but a part of a character, and then adds nothing yet: what decodes to a replacement character at
    the end may still be mended. And a token's text may depend on the one before (a space, or none): so each is
    decoded behind those of which the text was given out last. `before` are the tokens that the text continues,
    `silent` those that have no text.
    """

    def __init__(
        self,
        decode: Callable[[Sequence[int]], str],
        before: Sequence[int] = (),
        silent: Container[int] = frozenset(),
    ) -> None:
        self._decode = decode
        self._silent = silent
        self._window = [token for token in before if token not in silent]
        self._given = len(self._window)

    def push(self, token: int) -> str:
        """The text that is certain with this token; mostly its own, sometimes none."""
        if token in self._silent:
            return ""
        self._window.append(token)
        text = self._fresh(len(self._window))
        if not text.endswith(REPLACEMENT):
            return self._give(text, len(self._window)) if text else ""
        return self._give_most() if len(self._window) - self._given > _LONG else ""

    def finish(self) -> str:
        """The rest: what no token will mend any more."""
        return self._give(self._fresh(len(self._window)), len(self._window))

    def _fresh(self, end: int) -> str:
        """The text of the tokens up to `end` that was not given out yet."""
        known = self._decode(self._window[: self._given])
        return self._decode(self._window[:end])[len(known) :]

    def _give(self, text: str, end: int) -> str:
        self._window = self._window[self._given :]
        self._given = end - self._given
        return text

    def _give_most(self) -> str:
        """Give out all but the last few tokens, cut where no character can be; they decode on their own."""
        whole = self._decode(self._window)
        for end in range(len(self._window) - 1, len(self._window) - 1 - _BYTES, -1):
            if self._decode(self._window[:end]) + self._decode(self._window[end:]) == whole:
                return self._give(self._fresh(end), end)
        return ""
