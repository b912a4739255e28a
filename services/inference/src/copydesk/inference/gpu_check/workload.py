"""What engines are asked in a check."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from copydesk.inference.engine import GenerateTokens

_SPECIALS = 3
_CLEAN = 2 / 3  # of the sentences need no edit
_EDITS = 3


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, and its answer where that is known beforehand."""

    request: GenerateTokens
    answer: tuple[int, ...] | None = None


def random_prompts(vocabulary: int, count: int, tokens: int, *, counting: bool) -> list[Asked]:
    """So many random tokens in, exactly as many out."""
    rng = random.Random(0)
    asked: list[Asked] = []
    for _ in range(count):
        prompt = [rng.randrange(_SPECIALS, vocabulary) for _ in range(tokens)]
        answer = counted(prompt[-1], tokens, vocabulary) if counting else None
        asked.append(Asked(GenerateTokens(prompt, tokens, []), answer))
    return asked


def counted_corrections(vocabulary: int, count: int, tokens: int) -> list[Asked]:
    """For a counting model: two thirds of the sources are the answer, in the others are three edits to make.

    The answers have `tokens` tokens, and the prompts a few more, as if a template were around the source.
    """
    rng = random.Random(1)
    asked: list[Asked] = []
    for _ in range(count):
        prompt = [rng.randrange(_SPECIALS, vocabulary) for _ in range(tokens + 10)]
        *answer, stop = counted(prompt[-1], tokens + 1, vocabulary)
        source = list(answer)
        if rng.random() >= _CLEAN:
            for place in rng.sample(range(tokens), _EDITS):
                source[place] = rng.randrange(_SPECIALS, vocabulary)
        asked.append(Asked(GenerateTokens(prompt, tokens + 10, [stop], source=source), tuple(answer)))
    return asked


def corrections(model: Path, sentences: Path, count: int, context: int) -> list[Asked]:
    """Sentences of a file, one a line, asked as the model's directory says; those that do not fit are left out."""
    from copydesk.inference.correction import Corrector

    corrector = Corrector.load(model, context=context)
    encoded = [
        corrector.encode(line.strip()) for line in sentences.read_text().splitlines()[:count] if line.strip()
    ]
    return [Asked(sentence.request()) for sentence in encoded if sentence.fits]


def counted(token: int, count: int, vocabulary: int) -> tuple[int, ...]:
    """What a counting model says after a token."""
    return tuple((token + 1 + place) % vocabulary for place in range(count))


def in_turn(asked: Sequence[Asked], index: int) -> Asked:
    """They are asked over and over."""
    return asked[index % len(asked)]
