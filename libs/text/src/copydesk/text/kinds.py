"""What kind of mistake an edit mends, told from its two sides alone.

There is no dictionary here, so "misspelt" means: no common word (`common_words`), and its replacement is spelt
nearly like it but is no other inflection of it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum

import regex

from copydesk.text.common_words import COMMON_WORDS

_WORD = regex.compile(r"\w[\w\p{M}]*(?:'\w[\w\p{M}]*)*")
_SPACE = re.compile(r"\s+")
_PLAIN = str.maketrans(
    {
        "\u2018": "'",
        "\u2019": "'",
        "\u201a": "'",
        "\u201c": '"',
        "\u201d": '"',
        "\u201e": '"',
        "\u00ab": '"',
        "\u00bb": '"',
        "\u2010": "-",
        "\u2011": "-",
        "\u2012": "-",
        "\u2013": "-",
        "\u2014": "-",
        "\u2026": "...",
    }
)
_FORMS = frozenset(["", "'", "'s", "e", "ed", "en", "er", "es", "est", "ing", "ly", "s", "s'"])
_FORMS_AFTER_E = _FORMS | {"d", "n", "r", "st"}
_FORMS_WITH_Y = frozenset(["y", "ied", "ier", "ies", "iest", "ily"])
_STEM = 2
"""Letters that two inflections of a word have in common at least: "go" and "goes"."""
_LONGEST = 32
"""Letters beyond which nobody compares two words letter by letter."""


class Kind(StrEnum):
    """The kinds of mistakes, as editors colour them and people switch them off."""

    SPELLING = "spelling"
    """A word misspelt, or wrongly written as one or as two."""
    GRAMMAR = "grammar"
    """A wrong form or a wrong word, one too many, one missing, or words in the wrong order."""
    PUNCTUATION = "punctuation"
    """Marks that are wrong, missing, or too many."""
    CASING = "casing"
    """Capital letters."""
    WHITESPACE = "whitespace"
    """Spaces between the same words and marks."""
    TYPOGRAPHY = "typography"
    """Another shape of the same mark: straight and curly quotes, hyphens and dashes."""


def kind_of(old: str, new: str) -> Kind:
    """Return the kind of the mistake that replacing `old` by `new` mends; there is one for any two texts."""
    plain_old, plain_new = old.translate(_PLAIN), new.translate(_PLAIN)
    left, right = _WORD.findall(plain_old), _WORD.findall(plain_new)
    if left == right:
        return _kind_of_marks(old, new, plain_old, plain_new)
    left, right = _folded(left), _folded(right)
    if left == right:
        same_marks = _spaceless(plain_old).casefold() == _spaceless(plain_new).casefold()
        return Kind.CASING if same_marks else Kind.PUNCTUATION
    if "".join(left) == "".join(right):
        return Kind.SPELLING
    if len(left) != len(right):
        return Kind.GRAMMAR
    return _kind_of_words(left, right)


def _kind_of_marks(old: str, new: str, plain_old: str, plain_new: str) -> Kind:
    if _spaceless(old) == _spaceless(new):
        return Kind.WHITESPACE
    return Kind.TYPOGRAPHY if _spaceless(plain_old) == _spaceless(plain_new) else Kind.PUNCTUATION


def _kind_of_words(left: Sequence[str], right: Sequence[str]) -> Kind:
    """Words in the same number, folded: misspelt only if each that differs is."""
    different = [(old, new) for old, new in zip(left, right, strict=True) if old != new]
    return Kind.SPELLING if all(_is_misspelt(old, new) for old, new in different) else Kind.GRAMMAR


def _is_misspelt(old: str, new: str) -> bool:
    if old in COMMON_WORDS or max(len(old), len(new)) > _LONGEST or _are_inflections(old, new):
        return False
    limit = max(1, max(len(old), len(new)) // 3)
    return _slips(old, new, limit) <= limit


def _are_inflections(old: str, new: str) -> bool:
    """Whether both may be forms of one word: the same stem with two endings ("study", "studies").

    Two that differ in nothing but a doubled consonant are not: "begining" is misspelt.
    """
    stem = 0
    while stem < min(len(old), len(new)) and old[stem] == new[stem]:
        stem += 1
    if stem < _STEM:
        return False
    last = old[stem - 1]
    endings = {_undoubled(old[stem:], last), _undoubled(new[stem:], last)}
    if len(endings) == 1:
        return False
    if endings <= _FORMS_WITH_Y:
        return True
    return endings != {"", "e"} and endings <= (_FORMS_AFTER_E if last == "e" else _FORMS)


def _undoubled(ending: str, last: str) -> str:
    """Take off the consonant that doubles before an ending: "stop", "stopped"."""
    return ending[1:] if len(ending) > 2 and ending.startswith(last) else ending


def _slips(old: str, new: str, limit: int) -> int:
    """Return how many letters were left out, put in, changed, or swapped with the next; past `limit`, any more.

    The optimal string alignment distance: Damerau, "A technique for computer detection and correction of spelling
    errors" (CACM 7, 1964), where four in five misspellings are a single such slip.
    """
    if abs(len(old) - len(new)) > limit:
        return limit + 1
    before: list[int] = []
    row = list(range(len(new) + 1))
    for i, letter in enumerate(old):
        before, above, row = row, before, [i + 1]
        for j, other in enumerate(new):
            cost = min(before[j + 1] + 1, row[j] + 1, before[j] + (letter != other))
            if i and j and letter == new[j - 1] and old[i - 1] == other:
                cost = min(cost, above[j - 1] + 1)
            row.append(cost)
    return row[-1]


def _folded(words: Sequence[str]) -> list[str]:
    return [word.casefold() for word in words]


def _spaceless(text: str) -> str:
    return _SPACE.sub("", text)
