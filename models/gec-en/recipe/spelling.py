"""Misspelling one word: sounds written otherwise, letters lost, swapped, doubled or mistyped."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable

from recipe import lexicon

Typos = dict[str, list[str]]
"""By word, its known misspellings; those that are near it several times."""

_OFTEN = {1: 6, 2: 3}
"""How often a misspelling is made, by its distance; others once."""


def read_typos(lines: Iterable[str]) -> Typos:
    """From the lines of crate-ci/typos' `words.csv`: misspelling, correction, and perhaps more corrections."""
    typos: Typos = {}
    for line in lines:
        fields = line.strip().split(",")
        if len(fields) == 2 and fields[0].isalpha() and fields[1].isalpha():
            wrong, right = fields
            typos.setdefault(right, []).extend([wrong] * _OFTEN.get(distance(wrong, right), 1))
    return typos


def distance(first: str, second: str) -> int:
    """Levenshtein's: the fewest letters put in, left out or replaced."""
    row = list(range(len(second) + 1))
    for i, letter in enumerate(first, 1):
        before, row[0] = row[0], i
        for j, other in enumerate(second, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (letter != other))
    return row[-1]


def misspell(word: str, rng: random.Random) -> str:
    """Misspell `word` (lower case) in one place."""
    if rng.random() < 0.42:
        respelled = _respell(word, rng)
        if respelled is not None:
            return respelled
    return _mistype(word, rng)


def _respell(word: str, rng: random.Random) -> str | None:
    found = [
        (old, new, match.start())
        for old, new in lexicon.pairs("spellings")
        for match in re.finditer(old, word)
        if match.start() > 0 or len(old) > 1
    ]
    if not found:
        return None
    longer = [entry for entry in found if len(entry[0]) > 1]
    old, new, start = rng.choice(longer if longer and rng.random() < 0.6 else found)
    return word[:start] + new + word[start + len(old) :]


def _mistype(word: str, rng: random.Random) -> str:
    at = rng.randrange(1, len(word)) if len(word) > 2 else 0
    kind = rng.random()
    if kind < 0.3:
        return word[:at] + word[at + 1 :]
    if kind < 0.55 and at + 1 < len(word):
        return word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    if kind < 0.72:
        return word[:at] + word[at] + word[at:]
    if kind < 0.86:
        return word[:at] + rng.choice("aeiouerstn") + word[at:]
    keys = lexicon.replacements("neighbouring_keys")
    return word[:at] + rng.choice(keys.get(word[at], "e")) + word[at + 1 :]
