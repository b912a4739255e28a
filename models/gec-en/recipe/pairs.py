"""Pairs of a source and its correction, a JSON line each."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Pair:
    """What is to be corrected, what it should become, and where it is from."""

    source: str
    target: str
    origin: str

    @property
    def unchanged(self) -> bool:
        """Whether there is nothing to correct."""
        return self.source == self.target


def read_pairs(path: Path) -> list[Pair]:
    """Every pair of a file."""
    rows = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    return [Pair(row["s"], row["t"], row["o"]) for row in rows]


def write_pairs(path: Path, pairs: Iterable[Pair]) -> None:
    """One line a pair."""
    with path.open("w", encoding="utf-8") as file:
        for pair in pairs:
            row = {"s": pair.source, "t": pair.target, "o": pair.origin}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
