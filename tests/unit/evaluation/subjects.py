"""Models for tests: what each sentence becomes is written down, or told by a function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Said:
    text: str
    outcome: str = "corrected"


@dataclass
class Scripted:
    """Answers with what `answer` makes of a text, and takes `seconds` on `clock` for each call."""

    answer: Callable[[str], str]
    name: str = "scripted"
    facts: dict[str, str] = field(default_factory=dict)
    calls: list[list[str]] = field(default_factory=list)
    clock: list[float] = field(default_factory=lambda: [0.0])
    seconds: float = 0.0
    outcome: str = "corrected"

    def correct(self, texts: Sequence[str]) -> list[Said]:
        self.calls.append(list(texts))
        self.clock[0] += self.seconds
        return [Said(self.answer(text), self.outcome) for text in texts]
