"""What keeps the benchmark from measuring."""

from __future__ import annotations


class BenchError(Exception):
    """A part of the measurement is not there or failed: it carries its name and what it said."""

    def __init__(self, part: str, said: str) -> None:
        self.part = part
        self.said = said
        super().__init__(f"{part}: {said}")
