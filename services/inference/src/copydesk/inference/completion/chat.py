"""A conversation as the model's own chat template puts it, in tokens."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from copydesk.common.tasks import ChatMessage
from copydesk.inference.completion.errors import MessagesRefusedError
from copydesk.inference.correction import ChatTemplateError, ModelFiles, TextTokenizer, compile_template, render

_MARKS = (*range(0xFDD0, 0xFDF0), *range(0xF0000, 0xFFFFE))
"""Code points that mean nothing to anybody, and more of them than a conversation has characters."""


class ChatPrompts:
    """Renders conversations. Control tokens come from the template alone, whatever was said."""

    def __init__(self, files: ModelFiles, tokenizer: TextTokenizer) -> None:
        self._files = files
        self._tokenizer = tokenizer
        self._template = compile_template(files.chat_template, files.directory)

    def encode(self, messages: Sequence[ChatMessage]) -> list[int]:
        """The tokens of the prompt for an answer to `messages`.

        What was said is rendered with a mark wherever a control token could begin or end in it, so that none is
        found there; then the marks go.

        Raises:
            MessagesRefusedError: The template does not take them.
        """
        said = set(itertools.chain.from_iterable(message.content for message in messages))
        mark = next(chr(code) for code in _MARKS if chr(code) not in said)
        turns = [
            {"role": _role(message.role), "content": self._tokenizer.disarm(message.content, mark)}
            for message in messages
        ]
        try:
            text = render(self._template, self._files.named_tokens, turns, self._files.directory)
        except ChatTemplateError as error:
            raise MessagesRefusedError(error.reason) from error
        return self._tokenizer.encode_template(text, mark=mark)


def _role(role: str) -> str:
    """OpenAI's newer name for `system` is one that no template knows."""
    return "system" if role == "developer" else role
