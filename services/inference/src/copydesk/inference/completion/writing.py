"""One text in the making."""

from __future__ import annotations

from collections.abc import Sequence

from copydesk.common.tasks import GeneratedText, Stopped
from copydesk.inference.completion.detokeniser import Detokeniser
from copydesk.inference.completion.stop_strings import StopStrings
from copydesk.inference.engine import Finish, GeneratedTokens


class Writing:
    """Takes tokens as an engine makes them, and gives out text until a stop string or the engine ends it.

    Tokens are taken one by one, so that text and usage do not depend on how many came at once.
    """

    def __init__(
        self, detokeniser: Detokeniser, stops: Sequence[str], own_stop_ids: frozenset[int], prompt_tokens: int
    ) -> None:
        self._detokeniser = detokeniser
        self._stops = StopStrings(stops)
        self._own_stop_ids = own_stop_ids
        self._prompt_tokens = prompt_tokens
        self._parts: list[str] = []
        self._taken = 0

    @property
    def stopped(self) -> bool:
        """Whether a stop string has ended the text."""
        return self._stops.found is not None

    def push(self, tokens: Sequence[int]) -> str:
        """Take tokens and return the text that is certain with them."""
        return self._keep("".join(self._text(token) for token in tokens))

    def finish(self, answer: GeneratedTokens) -> str:
        """Take the engine's whole answer, of which the beginning may have come before; return the rest."""
        text = self.push(answer.tokens[self._taken :])
        if self.stopped:
            return text
        return text + self._keep(self._stops.push(self._detokeniser.finish()) + self._stops.finish())

    def cut(self) -> GeneratedText:
        """The text that a stop string has ended."""
        return GeneratedText(
            "".join(self._parts), Stopped.STOP, self._stops.found, self._prompt_tokens, self._taken
        )

    def result(self, answer: GeneratedTokens) -> GeneratedText:
        """The text after `finish`."""
        if self.stopped:
            return self.cut()
        return GeneratedText(
            "".join(self._parts),
            Stopped.STOP if answer.finish is Finish.STOP else Stopped.LENGTH,
            answer.stop_id if answer.stop_id in self._own_stop_ids else None,
            self._prompt_tokens,
            answer.completion_tokens,
            answer.passes,
            answer.drafted,
            answer.accepted,
        )

    def _text(self, token: int) -> str:
        if self.stopped:
            return ""
        self._taken += 1
        return self._stops.push(self._detokeniser.push(token))

    def _keep(self, text: str) -> str:
        if text:
            self._parts.append(text)
        return text
