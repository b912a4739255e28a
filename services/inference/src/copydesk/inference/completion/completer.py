"""One model's way with a request for a text: what to ask the engine, and what to make of its tokens."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from copydesk.common.tasks import ChatPrompt, GenerateText, TextPrompt
from copydesk.inference.completion.chat import ChatPrompts
from copydesk.inference.completion.detokeniser import Detokeniser, last_character
from copydesk.inference.completion.errors import UnknownTokenError
from copydesk.inference.completion.limits import (
    Prompt,
    answer_room,
    check_parameters,
    check_prompt,
    sampling_of,
)
from copydesk.inference.completion.writing import Writing
from copydesk.inference.correction import ModelFiles, TextTokenizer, end_ids
from copydesk.inference.engine import GenerateTokens


def _any_seed() -> int:
    return random.getrandbits(63)


@dataclass(frozen=True, slots=True)
class Plan:
    """What to ask the engine, and what will make a text of its tokens."""

    request: GenerateTokens
    writing: Writing


class Completer:
    """Turns requests for texts into requests for tokens. For one thread at a time.

    `context` is how many tokens the engine gives a request, if less than the model's own; `any_seed` makes the
    seed of a request that names none.
    """

    def __init__(
        self,
        files: ModelFiles,
        tokenizer: TextTokenizer,
        *,
        context: int | None = None,
        any_seed: Callable[[], int] = _any_seed,
    ) -> None:
        self.context = files.context if context is None else min(context, files.context)
        self._tokenizer = tokenizer
        self._chats = ChatPrompts(files, tokenizer)
        self._end_ids = list(end_ids(files, tokenizer))
        self._any_seed = any_seed

    def plan(self, task: GenerateText) -> Plan:
        """Check and tokenise a request.

        Tokens are streamed by the engine also where only the end of the text is wanted, if stop strings can end
        it before the engine would.

        Raises:
            CompletionError: It cannot be served.
            InvalidSamplingError: A sampling parameter means nothing.
        """
        check_parameters(task)
        check_prompt(task.prompt, self.context)
        self._require_known("stop_ids", task.stop_ids)
        prompt = self._encode(task.prompt)
        request = GenerateTokens(
            prompt,
            answer_room(task.prompt, len(prompt), task.max_tokens, self.context),
            list(dict.fromkeys([*([] if task.ignore_eos else self._end_ids), *task.stop_ids])),
            sampling=sampling_of(task, self._any_seed()),
            stream=task.stream or bool(task.stop),
        )
        return Plan(request, self._writing(task, prompt))

    def _encode(self, prompt: Prompt) -> list[int]:
        if isinstance(prompt, ChatPrompt):
            return self._chats.encode(prompt.messages)
        if isinstance(prompt, TextPrompt):
            return self._tokenizer.encode_document(prompt.text)
        self._require_known("prompt", prompt.ids)
        return list(prompt.ids)

    def _writing(self, task: GenerateText, prompt: list[int]) -> Writing:
        decode = self._tokenizer.decode
        before = [] if isinstance(task.prompt, ChatPrompt) else last_character(decode, prompt)
        detokeniser = Detokeniser(decode, before, self._tokenizer.silent_ids)
        return Writing(detokeniser, task.stop, frozenset(task.stop_ids), len(prompt))

    def _require_known(self, parameter: str, tokens: list[int]) -> None:
        unknown = self._tokenizer.unknown(tokens)
        if unknown is not None:
            raise UnknownTokenError(parameter, unknown)
