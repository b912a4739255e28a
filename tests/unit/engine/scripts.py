"""Scripts of what clients do to an engine, drawn at random, and a model that keeps what each step asked of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from copydesk.common.rpc.frames import Priority
from copydesk.inference.engine import Engine, GeneratedTokens, GenerateTokens, QueueFullError, Sampling
from copydesk.inference.engine.native.layout import Run, StepResult

VOCABULARY = 17
LATER = 1e9
_What = tuple[int, int, tuple[int, ...], int, bool]


def follows(tokens: Sequence[int]) -> int:
    """The likeliest token after `tokens`: short cycles, so that both kinds of drafts are right at times."""
    return (3 * tokens[-1] + sum(tokens[-3:-1]) + 1) % VOCABULARY


class Recording:
    """A model that follows a rule, from a cache of its own, and keeps what each step asked of it."""

    def __init__(self, rule: Callable[[Sequence[int]], int] = follows) -> None:
        self._rule = rule
        self.cache: dict[int, list[int]] = {}
        self.steps: list[list[_What]] = []

    def run(self, runs: Sequence[Run]) -> StepResult:
        self.steps.append([(run.slot, run.start, tuple(run.tokens), run.samples, run.scores) for run in runs])
        result = StepResult({})
        for run in runs:
            held = self.cache.setdefault(run.slot, [])
            assert run.start <= len(held), "a position was skipped"
            held[run.start :] = run.tokens
            chosen = [self._rule(held[: run.end - run.samples + 1 + i]) for i in range(run.samples)]
            if run.scores:
                result.scores[run.slot] = _peaks(chosen)
            elif run.samples:
                result.tokens[run.slot] = chosen
        return result


def _peaks(chosen: Sequence[int]) -> NDArray[np.float32]:
    distances = np.arange(VOCABULARY)[None, :] - np.array(chosen)[:, None]
    scores: NDArray[np.float32] = (2.0 * np.cos(0.37 * distances)).astype(np.float32)
    return scores


@dataclass(frozen=True)
class Submit:
    request: GenerateTokens
    priority: Priority
    patience: float  # how much later than the next step its deadline is


@dataclass(frozen=True)
class Cancel:
    back: int  # the request that was submitted so many before


@dataclass(frozen=True)
class Step:
    pass


Action = Submit | Cancel | Step


@dataclass
class Played:
    """One engine, its model, and what it delivered since the last look."""

    engine: Engine
    model: Recording
    numbers: list[int] = field(default_factory=list)
    answers: dict[int, GeneratedTokens] = field(default_factory=dict)
    streamed: dict[int, list[int]] = field(default_factory=dict)

    def submit(self, action: Submit, now: float) -> bool:
        index = len(self.numbers)

        def done(answer: GeneratedTokens) -> None:
            assert index not in self.answers, "answered twice"
            self.answers[index] = answer

        def stream(tokens: list[int]) -> None:
            assert index not in self.answers, "streamed after its end"
            self.streamed.setdefault(index, []).extend(tokens)

        try:
            number = self.engine.submit(
                action.request,
                deadline=now + action.patience,
                priority=action.priority,
                on_done=done,
                on_tokens=stream,
            )
        except QueueFullError:
            return False
        self.numbers.append(number)
        return True

    def cancel(self, back: int) -> None:
        if back <= len(self.numbers):
            self.engine.cancel(self.numbers[-back])

    def seen(self) -> tuple[Any, ...]:
        load = self.engine.load()
        return self.model.steps, self.answers, self.streamed, load.running, load.queued


tokens = st.integers(0, VOCABULARY - 1)
samplings = st.sampled_from(
    [*[Sampling()] * 4, Sampling(temperature=0.9, top_p=0.9, seed=3), Sampling(presence_penalty=1.0)]
)


@st.composite
def likely_sources(draw: st.DrawFn, prompt: list[int]) -> list[int]:
    """What the model would answer, with some of it replaced, left out, or by what is no token."""
    text = list(prompt)
    for _ in range(draw(st.integers(1, 24))):
        text.append(follows(text))
    source = text[len(prompt) :]
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, len(source)))
        put = draw(st.lists(tokens | st.sampled_from([-1, VOCABULARY, 2**31, 2**64]), max_size=2))
        source[place : place + draw(st.integers(0, 2))] = put
    return source


@st.composite
def submissions(draw: st.DrawFn) -> Submit:
    prompt = draw(st.lists(tokens, min_size=1, max_size=20))
    request = GenerateTokens(
        prompt=prompt,
        max_tokens=draw(st.integers(1, 24)),
        stop_ids=draw(st.lists(tokens, max_size=2)),
        source=draw(st.just([]) | likely_sources(prompt) | likely_sources(prompt)),
        sampling=draw(samplings),
        stream=draw(st.booleans()),
    )
    patience = draw(st.sampled_from([LATER, LATER, LATER, 0.0, 1.0, 4.0]))
    return Submit(request, draw(st.sampled_from(list(Priority))), patience)


actions = st.lists(
    submissions() | submissions() | st.builds(Cancel, st.integers(1, 6)) | st.just(Step()) | st.just(Step()),
    max_size=40,
)
shapes = st.fixed_dictionaries(
    {
        "slots": st.integers(1, 5),
        "queue": st.sampled_from([0, 1, 3, 50]),
        "cache_tokens": st.sampled_from([None, 0, 64, 100]),
        "context": st.sampled_from([21, 40]),
        "prefill_tokens": st.sampled_from([1, 3, 12, 200]),
        "draft_tokens": st.sampled_from([0, 1, 7, 40, 300]),
    }
)
