"""Regular expressions that come with a checkpoint, matched in time that they cannot blow up.

Python's own matcher tries one way after the other, which an expression such as `(.|.)(.|.)...x` makes take years.
This one follows all ways at once, as sets of places in the name (Thompson, "Regular Expression Search Algorithm",
1968), and says the same. Python's parser reads the expression; what needs a memory of the way (references back,
looking back) or flags is refused.
"""

from __future__ import annotations

import importlib
import re
import warnings
from collections.abc import Callable, Iterable
from typing import Any

_LONGEST = 200  # characters
_parser: Any = importlib.import_module("re._parser")

_CATEGORIES: dict[str, Callable[[str], bool]] = {
    "CATEGORY_DIGIT": str.isdecimal,
    "CATEGORY_NOT_DIGIT": lambda c: not c.isdecimal(),
    "CATEGORY_SPACE": str.isspace,
    "CATEGORY_NOT_SPACE": lambda c: not c.isspace(),
    "CATEGORY_WORD": lambda c: c.isalnum() or c == "_",
    "CATEGORY_NOT_WORD": lambda c: not (c.isalnum() or c == "_"),
}
_CHARACTERS = {"LITERAL", "NOT_LITERAL", "ANY", "IN"}
_REPEATS = {"MAX_REPEAT", "MIN_REPEAT"}
_LOOKING = {"ASSERT", "ASSERT_NOT"}
_AHEAD = 1
_PLACES = {"AT_BEGINNING", "AT_BEGINNING_STRING", "AT_END", "AT_END_STRING"}
_SETS = {"LITERAL", "RANGE", "CATEGORY", "NEGATE"}

_Node = tuple[Any, Any]


class Expression:
    """An expression; raises `ValueError` with the reason if it is none, or one of those that are refused."""

    def __init__(self, text: str) -> None:
        if len(text) > _LONGEST:
            raise ValueError(f"longer than {_LONGEST} characters")
        try:
            with warnings.catch_warnings(action="ignore"):  # of what may mean something else in later versions
                parsed = _parser.parse(text)
            if parsed.state.flags & ~int(re.UNICODE):
                raise ValueError("flags are not served")
            _check(parsed)
        except (re.error, RecursionError, OverflowError) as error:
            raise ValueError(str(error)) from error
        self._nodes = parsed

    def matches(self, name: str) -> bool:
        """Whether it matches `name` from its beginning."""
        return bool(_Search(name).sequence(self._nodes, 0))


class _Search:
    """Where in one name each part of an expression may end, by where it begins: each is found once."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._known: dict[tuple[int, int], frozenset[int]] = {}

    def sequence(self, nodes: Iterable[_Node], start: int) -> frozenset[int]:
        places = frozenset((start,))
        for node in nodes:
            places = frozenset().union(*(self._ends(node, place) for place in places))
        return places

    def _ends(self, node: _Node, start: int) -> frozenset[int]:
        key = id(node), start
        if key not in self._known:
            self._known[key] = self._found(str(node[0]), node[1], start)
        return self._known[key]

    def _found(self, kind: str, value: Any, start: int) -> frozenset[int]:
        if kind in _CHARACTERS:
            fits = start < len(self._name) and _fits(kind, value, self._name[start])
            return frozenset((start + 1,)) if fits else frozenset()
        if kind == "AT":
            return frozenset((start,)) if self._is_at(str(value), start) else frozenset()
        if kind in _LOOKING:
            return (
                frozenset((start,)) if bool(self.sequence(value[1], start)) is (kind == "ASSERT") else frozenset()
            )
        if kind == "SUBPATTERN":
            return self.sequence(value[3], start)
        if kind == "BRANCH":
            return frozenset().union(*(self.sequence(way, start) for way in value[1]))
        return self._repeated(value[2], start, int(value[0]), int(value[1]))

    def _repeated(self, body: Iterable[_Node], start: int, least: int, most: int) -> frozenset[int]:
        """A round that gets nowhere new is the last: its body can be empty, or there is no place left."""
        places = frozenset((start,))
        ends: set[int] = set(places) if least == 0 else set()
        for done in range(1, most + 1):
            before = places
            places = frozenset().union(*(self.sequence(body, place) for place in places))
            if done >= least or places == before:
                if places <= ends:
                    break
                ends |= places
        return frozenset(ends)

    def _is_at(self, where: str, place: int) -> bool:
        if where.startswith("AT_BEGINNING"):
            return place == 0
        return place == len(self._name) or (where == "AT_END" and self._name[place:] == "\n")


def _fits(kind: str, value: Any, character: str) -> bool:
    if kind == "ANY":
        return character != "\n"
    if kind in {"LITERAL", "NOT_LITERAL"}:
        return (ord(character) == value) is (kind == "LITERAL")
    negated = str(value[0][0]) == "NEGATE"
    return any(_is_in(str(part), what, character) for part, what in value[negated:]) is not negated


def _is_in(part: str, what: Any, character: str) -> bool:
    if part == "CATEGORY":
        return _CATEGORIES[str(what)](character)
    low, high = what if part == "RANGE" else (what, what)
    return bool(low <= ord(character) <= high)


def _check(nodes: Iterable[_Node]) -> None:
    """Raises `ValueError` for what is not matched here."""
    for kind, value in nodes:
        name = str(kind)
        if name in _REPEATS:
            _check(value[2])
        elif name == "BRANCH":
            for way in value[1]:
                _check(way)
        elif name in _LOOKING and value[0] == _AHEAD:
            _check(value[1])
        elif name == "SUBPATTERN" and not (value[1] or value[2]):
            _check(value[3])
        elif not _is_plain(name, value):
            raise ValueError(f"{name.lower().replace('_', ' ')} is not served")


def _is_plain(name: str, value: Any) -> bool:
    if name == "AT":
        return str(value) in _PLACES
    if name == "IN":
        return all(str(part) in _SETS for part, _ in value)
    return name in _CHARACTERS
