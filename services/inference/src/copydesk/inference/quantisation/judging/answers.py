"""What the original answers, found without ever holding it: a pass guesses the rest of every answer, and verifies.

The guesses are the engine's drafts from the source, so that few passes are needed, and each of them reads the
weights once for all texts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from copydesk.inference.correction.corrector import EncodedSentence
from copydesk.inference.engine.native.draft import Course, agreement, from_source, outset, proceed, usable
from copydesk.inference.quantisation.judging.forward import Forward, best_tokens, plain_product
from copydesk.inference.quantisation.scheme import Scheme
from copydesk.inference.quantisation.source import Source


@dataclass
class Answering:
    """A question and what is known of its answer; a stop token that ended it is its last."""

    question: EncodedSentence
    answer: list[int] = field(default_factory=list)
    draft: list[int] = field(default_factory=list)
    _course: Course = field(init=False)

    def __post_init__(self) -> None:
        self._course = outset(self.question.source)

    @property
    def done(self) -> bool:
        """Whether nothing is to come."""
        ended = bool(self.answer) and self.answer[-1] in self.question.stop_ids
        return ended or len(self.answer) >= self.question.max_tokens

    @property
    def choices(self) -> int:
        """How many choices the model makes over the present `sequence`, at its end."""
        return len(self.draft) + 1

    def sequence(self, vocabulary: int) -> list[int]:
        """Guess anew, and return all tokens that go through the model."""
        room = self.question.max_tokens - len(self.answer) - 1
        guess = from_source(self.question.source, self._course.position, min(self._course.window, room))
        self.draft = usable(guess, self.question.stop_ids, vocabulary)
        return [*self.question.prompt, *self.answer, *self.draft]

    def take(self, chosen: Sequence[int]) -> None:
        """Keep what the model confirmed, and the token that it chose after that."""
        accepted = agreement(self.draft, chosen)
        for token in chosen[: accepted + 1]:
            self.answer.append(token)
            if self.done:
                return
        drafted = len(self.draft)
        source = self.question.source
        self._course = proceed(self._course, source, self.answer, drafted=drafted, accepted=accepted)


def find_answers(
    source: Source, questions: Sequence[EncodedSentence], progress: Callable[[float], None]
) -> list[list[int]]:
    """The original's greedy answer to each question, in float32, with the stop token where there is one."""
    all_of_them = [Answering(question) for question in questions]
    product = plain_product(source)
    while unfinished := [each for each in all_of_them if not each.done]:
        progress(1 - len(unfinished) / len(all_of_them))
        sequences = [each.sequence(source.config.vocabulary) for each in unfinished]
        states = Forward(source, sequences, Scheme.FP8).run(1, product, lambda _: None)[0]
        lasts = [states_of[-each.choices :] for states_of, each in _paired(states, sequences, unfinished)]
        chosen = best_tokens(source, torch.cat(lasts)).tolist()
        for each in unfinished:
            each.take([chosen.pop(0) for _ in range(each.choices)])
    return [each.answer for each in all_of_them]


def _paired(
    states: torch.Tensor, sequences: Sequence[Sequence[int]], answering: Sequence[Answering]
) -> list[tuple[torch.Tensor, Answering]]:
    return list(zip(torch.split_with_sizes(states, list(map(len, sequences))), answering, strict=True))
