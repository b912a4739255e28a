"""One request on its way: what came in, what was made of it so far."""

from __future__ import annotations

from dataclasses import dataclass, field

from copydesk.common.rpc.frames import Priority
from copydesk.inference.engine.interface import Finish, GeneratedTokens, GenerateTokens, OnDone


@dataclass(slots=True, eq=False)
class Generation:
    """`cached` counts the tokens, prompt first, whose keys and values are in the slot already."""

    id: int
    request: GenerateTokens
    deadline: float
    priority: Priority
    on_done: OnDone
    slot: int = -1
    cached: int = 0
    tokens: list[int] = field(default_factory=list)

    @property
    def pending(self) -> int:
        """How many known tokens are not in the cache yet: more than one only while the prompt goes in."""
        return len(self.request.prompt) + len(self.tokens) - self.cached

    def next_tokens(self, count: int) -> list[int]:
        """The first `count` of the pending tokens."""
        prompt = self.request.prompt
        if self.cached >= len(prompt):
            start = self.cached - len(prompt)
            return self.tokens[start : start + count]
        return prompt[self.cached : self.cached + count]

    def accept(self, token: int, context: int) -> Finish | None:
        """Take the next token, and say whether it was the last."""
        if token in self.request.stop_ids:
            return Finish.STOP
        self.tokens.append(token)
        length = len(self.request.prompt) + len(self.tokens)
        if len(self.tokens) >= self.request.max_tokens or length >= context:
            return Finish.LENGTH
        return None

    def finish(self, finish: Finish) -> None:
        """Deliver what there is."""
        self.on_done(
            GeneratedTokens(
                tokens=self.tokens,
                finish=finish,
                prompt_tokens=len(self.request.prompt),
                completion_tokens=len(self.tokens) + (finish is Finish.STOP),
            )
        )
