"""Ask one subject or two about every sentence, and time them alike.

They take turns: sentence by sentence while latency is measured, block by block afterwards, and who goes first
changes each time. Whatever else the machine does meanwhile then falls on both. No sentence is asked about twice,
for the second answer of a fleet may come from its cache.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from copydesk.evaluation.answers import Heard, Subject

_Piece = TypeVar("_Piece")
FIRST_TEXT = "This sentence comes before all others, and nobody counts how long it takes."


@dataclass(frozen=True, slots=True)
class Progress:
    """How far it is: `done` of `total` answers of all subjects together, and what is being done."""

    stage: str
    done: int
    total: int


OnProgress = Callable[[Progress], None]


@dataclass(slots=True)
class _Ear:
    """What has been heard of one subject so far."""

    subject: Subject
    texts: dict[str, str] = field(default_factory=dict)
    outcomes: dict[str, str] = field(default_factory=dict)
    alone_ms: list[float] = field(default_factory=list)
    batched: int = 0
    batched_s: float = 0.0

    def ask(self, block: Sequence[str], clock: Callable[[], float]) -> float:
        """Have a block corrected; return how many seconds it took."""
        began = clock()
        answers = self.subject.correct(block)
        took = clock() - began
        for text, answer in zip(block, answers, strict=True):
            self.texts[text] = answer.text
            self.outcomes[text] = str(answer.outcome)
        return took

    def heard(self) -> Heard:
        return Heard(self.texts, self.outcomes, tuple(self.alone_ms), self.batched, self.batched_s)


def ask(
    subjects: Sequence[Subject],
    texts: Sequence[str],
    *,
    alone: int,
    block: int,
    progress: OnProgress,
    clock: Callable[[], float] = time.perf_counter,
) -> list[Heard]:
    """Ask every subject about all texts: `alone` of them, spread over all, one at a time, the others by blocks."""
    ears = [_Ear(subject) for subject in subjects]
    unique = list(dict.fromkeys(texts))
    single = spread(unique, alone)
    others = [text for text in unique if text not in set(single)]
    total = len(unique) * len(ears)
    done = 0
    for ear in ears:
        progress(Progress(f"warming {ear.subject.name}", done, total))
        ear.subject.correct([FIRST_TEXT])
    for ear, text in _turns(ears, single):
        ear.alone_ms.append(1000.0 * ear.ask([text], clock))
        done += 1
        progress(Progress("one at a time", done, total))
    for ear, piece in _turns(ears, [others[at : at + block] for at in range(0, len(others), block)]):
        ear.batched_s += ear.ask(piece, clock)
        ear.batched += len(piece)
        done += len(piece)
        progress(Progress("side by side", done, total))
    return [ear.heard() for ear in ears]


def spread(texts: Sequence[str], count: int) -> list[str]:
    """Take `count` texts at even distances, so that all parts of a corpus are among them."""
    count = min(count, len(texts))
    return [texts[place * len(texts) // count] for place in range(count)]


def _turns(ears: Sequence[_Ear], pieces: Sequence[_Piece]) -> Iterator[tuple[_Ear, _Piece]]:
    for number, piece in enumerate(pieces):
        for ear in ears if number % 2 == 0 else reversed(ears):
            yield ear, piece
