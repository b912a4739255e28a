"""A tagged sentence that is taken apart word by word."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass

Tagged = tuple[str, str, str]
"""A word, the white space after it, and its Penn Treebank tag."""


@dataclass(slots=True)
class Word:
    """One token; `touched` once something was done to it, so that nothing else is."""

    text: str
    space: str
    tag: str
    touched: bool = False

    @property
    def low(self) -> str:
        """The text in lower case."""
        return self.text.lower()


class Sentence(list[Word]):
    """The words of a sentence, with the changes that all corruptions are made of."""

    @classmethod
    def of(cls, tokens: Iterable[Tagged]) -> Sentence:
        """From words, spaces and tags."""
        return cls(Word(*token) for token in tokens)

    def __str__(self) -> str:
        return "".join(word.text + word.space for word in self).strip()

    def pick(self, rng: random.Random, fits: Callable[[int, Word], object]) -> int | None:
        """The place of a random untouched word that fits, or None."""
        places = [i for i, word in enumerate(self) if not word.touched and fits(i, word)]
        return rng.choice(places) if places else None

    def substitute(self, i: int, new: str | None) -> bool:
        """Put `new` in the place of word `i`, with its capital; false if that changes nothing."""
        word = self[i]
        if new is None or new in (word.low, word.text):
            return False
        word.text, word.touched = keep_capital(word.text, new), True
        return True

    def drop(self, i: int) -> bool:
        """Leave word `i` out."""
        word = self.pop(i)
        if i < len(self):
            if word.text[:1].isupper() and i == 0:
                self[0].text = capitalise(self[0].text)
            self[i].touched = True
        if i and not word.space:
            self[i - 1].space = ""
        return True

    def put(self, i: int, text: str) -> bool:
        """Put a word before word `i`."""
        word = Word(text, " ", "XX", touched=True)
        if i == 0 and self and self[0].tag not in ("NNP", "NNPS") and self[0].text != "I":
            word.text = capitalise(text)
            self[0].text = self[0].text[:1].lower() + self[0].text[1:]
        self.insert(i, word)
        return True


def keep_capital(old: str, new: str) -> str:
    """`new` with the first letter of `old` in its case; all capitals are an abbreviation and do not count."""
    shouted = len(old) > 1 and old.isupper()
    return capitalise(new) if old[:1].isupper() and not shouted else new


def capitalise(text: str) -> str:
    """`text` with a capital and the rest as it is."""
    return text[:1].upper() + text[1:]
