"""The tokens of a sentence between those of what a template puts around it."""

from __future__ import annotations

from collections.abc import Sequence

from copydesk.inference.correction.template import Surroundings
from copydesk.inference.correction.text_tokenizer import TextTokenizer


class PromptTokens:
    """Puts the tokens of a sentence between those of its surroundings.

    The surroundings are tokenised once, up to the added tokens that stand next to the sentence. What is between
    those and the sentence goes through the tokenizer together with it, since tokens may span the seam.
    """

    def __init__(self, tokenizer: TextTokenizer, surroundings: Surroundings) -> None:
        self._tokenizer = tokenizer
        self._head, self._before = self._cut_prefix(surroundings.prefix)
        self._after, self._foot = self._cut_suffix(surroundings.suffix)

    @property
    def control_ids(self) -> frozenset[int]:
        """The tokens that control the model, and that no text of a user becomes."""
        return self._tokenizer.control_ids

    def source(self, sentence: str) -> list[int]:
        """The tokens of the sentence by itself; no control token is ever among them."""
        return self._tokenizer.encode(sentence, continues=bool(self._head))

    def prompt(self, sentence: str) -> list[int]:
        """The tokens of the whole prompt."""
        return [*self._head, *self.source(self._before + sentence + self._after), *self._foot]

    @property
    def is_seamless(self) -> bool:
        """Whether control tokens stand right at the sentence, so that its own tokens are part of the prompt."""
        return not self._before and not self._after

    def join(self, source: Sequence[int]) -> list[int]:
        """The whole prompt around the tokens of a sentence; for seamless surroundings only."""
        return [*self._head, *source, *self._foot]

    def text(self, tokens: Sequence[int]) -> str:
        """The text of generated tokens, without control tokens."""
        return self._tokenizer.decode(tokens)

    def _cut_prefix(self, prefix: str) -> tuple[list[int], str]:
        parts = list(self._tokenizer.split(prefix))
        before = parts.pop() if parts and isinstance(parts[-1], str) else ""
        return self._encode(parts, continues=False), str(before)

    def _cut_suffix(self, suffix: str) -> tuple[str, list[int]]:
        parts = list(self._tokenizer.split(suffix))
        after = parts.pop(0) if parts and isinstance(parts[0], str) else ""
        return str(after), self._encode(parts, continues=True)

    def _encode(self, parts: Sequence[int | str], *, continues: bool) -> list[int]:
        ids: list[int] = []
        for part in parts:
            known = continues or bool(ids)
            ids += [part] if isinstance(part, int) else self._tokenizer.encode(part, continues=known)
        return ids
