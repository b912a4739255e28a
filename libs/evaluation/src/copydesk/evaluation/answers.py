"""Who is asked, and what comes back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class Answer(Protocol):
    """A corrected sentence; `copydesk.common.tasks.CorrectedSentence` is one.

    `outcome` says "corrected", or why the sentence came back as it was.
    """

    @property
    def text(self) -> str:
        """The sentence, corrected."""
        ...

    @property
    def outcome(self) -> str:
        """What became of it."""
        ...


class Subject(Protocol):
    """What is evaluated: a model directory in this process, or a fleet behind its gateway.

    `name` and `facts` are told in the result. Errors of `correct` end the evaluation.
    """

    @property
    def name(self) -> str:
        """What a person calls it: a path, a URL."""
        ...

    @property
    def facts(self) -> dict[str, str]:
        """What else tells it from others, such as its digest and its arithmetic."""
        ...

    def correct(self, texts: Sequence[str]) -> Sequence[Answer]:
        """Correct sentences side by side, as fast as it can."""
        ...


@dataclass(frozen=True, slots=True)
class Heard:
    """All that one subject said: its answers by text, and how long they took.

    `alone_ms` are the latencies of sentences one at a time, in the order in which they were asked. `batched` is
    how many others were answered in `batched_s` seconds, side by side.
    """

    texts: dict[str, str]
    outcomes: dict[str, str]
    alone_ms: tuple[float, ...]
    batched: int
    batched_s: float

    @property
    def rate(self) -> float | None:
        """Sentences a second, side by side; None where none were asked for so."""
        return self.batched / self.batched_s if self.batched_s > 0 else None
