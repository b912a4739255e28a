"""Which requests for a text a pod takes: every limit of a parameter, in one place."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence

from copydesk.common.tasks import ChatMessage, ChatPrompt, GenerateText, TextPrompt, TokenPrompt
from copydesk.inference.completion.errors import (
    ContextExceededError,
    EmptyPromptError,
    InvalidParameterError,
    PromptTooLongError,
    UnknownRoleError,
    UnsupportedParameterError,
)
from copydesk.inference.correction import most_characters
from copydesk.inference.engine import Sampling
from copydesk.inference.engine.sampling_limits import validate

MOST_STOPS = 16
MOST_STOP_CHARACTERS = 1_000
MOST_STOP_IDS = 64
ROLES = ("system", "developer", "user", "assistant")

Prompt = TextPrompt | TokenPrompt | ChatPrompt


def check_parameters(task: GenerateText) -> None:
    """Raise the `CompletionError` or `InvalidSamplingError` that says what is wrong with a request, if anything.

    What depends on the number of the prompt's tokens comes later.
    """
    _check_number_of_answers(task.n)
    validate(sampling_of(task, seed=0))
    if task.max_tokens is not None and task.max_tokens < 1:
        raise InvalidParameterError("max_tokens", task.max_tokens, "1 or more")
    _check_stops(task.stop)
    if len(task.stop_ids) > MOST_STOP_IDS:
        raise InvalidParameterError("stop_ids", f"a list of {len(task.stop_ids)}", f"at most {MOST_STOP_IDS}")


def check_prompt(prompt: Prompt, context: int) -> None:
    """Raise the `CompletionError` for a prompt that there is no need to tokenise."""
    if isinstance(prompt, ChatPrompt):
        _check_messages(prompt.messages)
    elif not (prompt.text if isinstance(prompt, TextPrompt) else prompt.ids):
        raise EmptyPromptError("prompt")
    most = context - 1 if isinstance(prompt, TokenPrompt) else most_characters(context)
    size = _size(prompt)
    if size > most:
        unit = "tokens" if isinstance(prompt, TokenPrompt) else "characters"
        raise PromptTooLongError(parameter_of(prompt), size, most, unit)


def answer_room(prompt: Prompt, tokens: int, max_tokens: int | None, context: int) -> int:
    """How many tokens the answer to a prompt of that many may have.

    Raises:
        PromptTooLongError: There is room for none.
        ContextExceededError: There is less room than was asked for.
    """
    if tokens >= context:
        raise PromptTooLongError(parameter_of(prompt), tokens, context - 1, "tokens")
    room = context - tokens
    if max_tokens is not None and max_tokens > room:
        raise ContextExceededError(tokens, max_tokens, context)
    return room if max_tokens is None else max_tokens


def sampling_of(task: GenerateText, seed: int) -> Sampling:
    """What an engine needs to know of the parameters; `seed` is for a request without one."""
    return Sampling(
        temperature=task.temperature,
        top_p=task.top_p,
        top_k=0 if task.top_k == -1 else task.top_k,
        min_p=task.min_p,
        seed=seed if task.seed is None else task.seed,
        presence_penalty=task.presence_penalty,
        frequency_penalty=task.frequency_penalty,
        repetition_penalty=task.repetition_penalty,
    )


def parameter_of(prompt: Prompt) -> str:
    """The name of the field that OpenAI's APIs have such a prompt in."""
    return "messages" if isinstance(prompt, ChatPrompt) else "prompt"


def _size(prompt: Prompt) -> int:
    if isinstance(prompt, ChatPrompt):
        return sum(len(message.role) + len(message.content) for message in prompt.messages)
    return len(prompt.text if isinstance(prompt, TextPrompt) else prompt.ids)


def _check_number_of_answers(n: int) -> None:
    if n < 1:
        raise InvalidParameterError("n", n, "1")
    if n > 1:
        raise UnsupportedParameterError("n", n, "1")


def _check_stops(stops: Sequence[str]) -> None:
    if len(stops) > MOST_STOPS:
        raise InvalidParameterError("stop", f"a list of {len(stops)}", f"at most {MOST_STOPS}")
    for index, stop in enumerate(stops):
        if not 0 < len(stop) <= MOST_STOP_CHARACTERS:
            expected = f"1 to {MOST_STOP_CHARACTERS} characters"
            raise InvalidParameterError(f"stop[{index}]", reprlib.repr(stop), expected)


def _check_messages(messages: Sequence[ChatMessage]) -> None:
    if not messages:
        raise EmptyPromptError("messages")
    for index, message in enumerate(messages):
        if message.role not in ROLES:
            raise UnknownRoleError(index, message.role, ROLES)
