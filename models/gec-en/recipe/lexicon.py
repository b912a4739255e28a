"""The tables of `corruption.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

Choices = Mapping[str, Sequence[str]]


@cache
def tables() -> dict[str, Any]:
    """Everything in the file, as it stands there."""
    return tomllib.loads(Path(__file__).with_name("corruption.toml").read_text(encoding="utf-8"))


@cache
def choices(name: str) -> Choices:
    """By word, what may be put in its place."""
    found: Choices = tables()[name]
    return found


@cache
def replacements(name: str) -> Mapping[str, str]:
    """By word, the one thing to put in its place."""
    found: Mapping[str, str] = tables()[name]
    return found


@cache
def pairs(name: str) -> Sequence[tuple[str, str]]:
    """A list of pairs."""
    return [(first, second) for first, second in tables()[name]]


@cache
def confusable() -> Choices:
    """By word, the words it is taken for; those of two words are only put in, never looked for."""
    return _others(group for group in tables()["confusable"])


@cache
def families() -> Choices:
    """By word, the other words of its family."""
    return _others(row.split() for row in tables()["families"])


def _others(groups: Iterable[Sequence[str]]) -> Choices:
    others: dict[str, list[str]] = {}
    for group in groups:
        for word in group:
            if " " not in word:
                others.setdefault(word, []).extend(other for other in group if other != word)
    return others
