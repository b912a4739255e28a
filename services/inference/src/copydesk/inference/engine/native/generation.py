"""One request on its way: what came in, what was made of it so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from copydesk.common.rpc.frames import Priority
from copydesk.inference.engine.interface import Finish, GeneratedTokens, GenerateTokens, OnDone, OnTokens
from copydesk.inference.engine.native.draft import (
    Course,
    agreement,
    from_history,
    from_source,
    outset,
    proceed,
    usable,
)
from copydesk.inference.engine.native.layout import Run

_PAGE_TOKENS = 32  # kPageTokens of csrc/step.hpp


def whole_pages(tokens: int) -> int:
    """Return room in the cache for so many tokens: it is counted in pages of 32."""
    return -(-tokens // _PAGE_TOKENS) * _PAGE_TOKENS


def room_in_cache(cache_tokens: int | None, slots: int, context: int) -> int:
    """Return for how many tokens there is room: enough for the longest request; None is for all slots at once."""
    longest = whole_pages(context)
    return slots * longest if cache_tokens is None else max(cache_tokens, longest)


@dataclass(frozen=True, slots=True)
class Limits:
    """What an engine allows any request: tokens in all, and how many different ones there are."""

    context: int
    vocabulary: int


@dataclass(slots=True, eq=False)
class Generation:
    """`cached` counts the tokens, prompt first, whose keys and values are in the slot already.

    Behind them the slot may hold those of refuted drafts, until the tokens that take their place are fed.
    `admitted` is when it got its slot, on the engine's clock.
    """

    id: int
    request: GenerateTokens
    deadline: float
    priority: Priority
    on_done: OnDone
    limits: Limits
    on_tokens: OnTokens | None = None
    slot: int = -1
    admitted: float = 0.0
    cached: int = 0
    tokens: list[int] = field(default_factory=list)
    passes: int = 0
    drafted: int = 0
    accepted: int = 0
    stop_id: int | None = None
    _course: Course = field(init=False)

    def __post_init__(self) -> None:
        self._course = outset(self.request.source)

    @property
    def pending(self) -> int:
        """How many known tokens are not in the cache yet: more than one only while the prompt goes in."""
        return len(self.request.prompt) + len(self.tokens) - self.cached

    @property
    def streams(self) -> bool:
        """Whether somebody wants its tokens as they are made."""
        return self.request.stream and self.on_tokens is not None

    @property
    def room(self) -> int:
        """How many tokens more it may make."""
        made = len(self.tokens)
        return min(self.request.max_tokens - made, self.limits.context - len(self.request.prompt) - made)

    @property
    def reserve(self) -> int:
        """How many tokens' keys and values it may come to have, in whole pages."""
        return whole_pages(min(self.limits.context, len(self.request.prompt) + self.request.max_tokens))

    def next_tokens(self, count: int) -> list[int]:
        """The first `count` of the pending tokens."""
        prompt = self.request.prompt
        if self.cached >= len(prompt):
            start = self.cached - len(prompt)
            return self.tokens[start : start + count]
        return prompt[self.cached : self.cached + count]

    def draft(self, free: int, most: int) -> list[int]:
        """Guess at the tokens after the known ones: `free` cost next to nothing, `most` is the limit.

        Less than `most` where the answer may not get that long: the model always adds a token of its own.
        """
        count = min(max(self._course.window, free), most, self.room - 1)
        if count <= 0:
            return []
        request = self.request
        if request.source:
            guess = from_source(request.source, self._course.position, count)
        else:
            guess = from_history(request.prompt + self.tokens, count)
        return usable(guess, request.stop_ids, self.limits.vocabulary)

    def advance(self, run: Run, sampled: Sequence[int]) -> Finish | None:
        """Take what a step made of a run of this request, and say whether it was the last."""
        draft = run.drafted
        accepted = agreement(draft, sampled)
        self.passes += 1
        self.drafted += len(draft)
        self.accepted += accepted
        self.cached += len(run.tokens) - len(draft) + accepted
        if not sampled:
            return None
        for token in sampled[: accepted + 1]:
            finish = self._accept(token)
            if finish is not None:
                return finish
        self._course = proceed(
            self._course, self.request.source, self.tokens, drafted=len(draft), accepted=accepted
        )
        return None

    def stream(self, tokens: list[int]) -> None:
        """Hand on what a step made."""
        if self.on_tokens is not None:
            self.on_tokens(tokens)

    def finish(self, finish: Finish) -> None:
        """Deliver what there is."""
        self.on_done(
            GeneratedTokens(
                tokens=self.tokens,
                finish=finish,
                prompt_tokens=len(self.request.prompt),
                completion_tokens=len(self.tokens) + (finish is Finish.STOP),
                passes=self.passes,
                drafted=self.drafted,
                accepted=self.accepted,
                stop_id=self.stop_id,
            )
        )

    def _accept(self, token: int) -> Finish | None:
        if token in self.request.stop_ids:
            self.stop_id = token
            return Finish.STOP
        self.tokens.append(token)
        return None if self.room > 0 else Finish.LENGTH
