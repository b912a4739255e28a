from __future__ import annotations

import math
from typing import Any

import pytest

from copydesk.common.tasks import ChatMessage, ChatPrompt, GenerateText, TextPrompt, TokenPrompt
from copydesk.inference.completion import Completer, CompletionError
from copydesk.inference.engine import InvalidSamplingError

HELLO = TextPrompt("hello")


def chat(*turns: tuple[str, str]) -> ChatPrompt:
    return ChatPrompt([ChatMessage(role, content) for role, content in turns])


@pytest.mark.parametrize(
    ("fields", "code", "parameter"),
    [
        ({"n": 0}, "invalid_parameter", "n"),
        ({"n": 2}, "unsupported_parameter", "n"),
        ({"max_tokens": 0}, "invalid_parameter", "max_tokens"),
        ({"max_tokens": -1}, "invalid_parameter", "max_tokens"),
        ({"max_tokens": 200}, "context_exceeded", "max_tokens"),
        ({"stop": [""]}, "invalid_parameter", "stop[0]"),
        ({"stop": ["a", "b" * 1001]}, "invalid_parameter", "stop[1]"),
        ({"stop": ["a"] * 17}, "invalid_parameter", "stop"),
        ({"stop_ids": [1] * 65}, "invalid_parameter", "stop_ids"),
        ({"stop_ids": [-1]}, "unknown_token", "stop_ids"),
        ({"stop_ids": [2**40]}, "unknown_token", "stop_ids"),
        ({"temperature": -0.1}, "invalid_sampling", "temperature"),
        ({"temperature": math.nan}, "invalid_sampling", "temperature"),
        ({"top_p": 0.0}, "invalid_sampling", "top_p"),
        ({"top_p": 1.1}, "invalid_sampling", "top_p"),
        ({"top_k": -2}, "invalid_sampling", "top_k"),
        ({"min_p": 1.1}, "invalid_sampling", "min_p"),
        ({"presence_penalty": 2.1}, "invalid_sampling", "presence_penalty"),
        ({"frequency_penalty": -2.1}, "invalid_sampling", "frequency_penalty"),
        ({"repetition_penalty": 0.0}, "invalid_sampling", "repetition_penalty"),
        ({"prompt": TextPrompt("")}, "empty_prompt", "prompt"),
        ({"prompt": TokenPrompt([])}, "empty_prompt", "prompt"),
        ({"prompt": ChatPrompt([])}, "empty_prompt", "messages"),
        ({"prompt": TokenPrompt([5, 100_000])}, "unknown_token", "prompt"),
        ({"prompt": TokenPrompt([5, -1])}, "unknown_token", "prompt"),
        ({"prompt": TokenPrompt([5] * 200)}, "prompt_too_long", "prompt"),
        ({"prompt": TextPrompt("x" * 199)}, "prompt_too_long", "prompt"),
        ({"prompt": TextPrompt("x" * 10_000_000)}, "prompt_too_long", "prompt"),
        ({"prompt": chat(("user", "x" * 200))}, "prompt_too_long", "messages"),
        ({"prompt": chat(*[("user", "x" * 2000)] * 2)}, "prompt_too_long", "messages"),
        ({"prompt": chat(("user", "hi"), ("tool", "x"))}, "unknown_role", "messages[1].role"),
        ({"prompt": chat(("user", "hi"), ("system", "x"))}, "messages_refused", "messages"),
    ],
)
def test_what_cannot_be_served_is_refused_by_code_and_parameter(
    completer: Completer, fields: dict[str, Any], code: str, parameter: str
) -> None:
    with pytest.raises((CompletionError, InvalidSamplingError)) as caught:
        completer.plan(GenerateText(**{"prompt": HELLO, **fields}))
    error: Any = caught.value
    assert (error.code, error.parameter) == (code, parameter)
    assert parameter in str(error)
    assert len(str(error)) < 300


@pytest.mark.parametrize(
    "fields",
    [
        {"max_tokens": 1},
        {"max_tokens": 194},
        {"stop": ["a" * 1000] * 16},
        {"stop_ids": [5] * 64},
        {"temperature": 0.0},
        {"top_p": 1e-9, "top_k": -1, "min_p": 1.0},
        {"prompt": TextPrompt("x" * 198)},
        {"prompt": TokenPrompt([2] * 199)},
        {"prompt": TextPrompt(" ")},
        {"prompt": chat(("system", "Be brief."), ("user", "hi"), ("assistant", ""), ("user", "so?"))},
    ],
)
def test_what_is_just_within_the_limits_is_taken(completer: Completer, fields: dict[str, Any]) -> None:
    request = completer.plan(GenerateText(**{"prompt": HELLO, **fields})).request
    assert len(request.prompt) + request.max_tokens <= 200


def test_the_message_about_too_long_a_prompt_tells_the_limit(completer: Completer) -> None:
    with pytest.raises(CompletionError, match="prompt has 251 tokens; at most 199 fit"):
        completer.plan(GenerateText(TextPrompt("x" * 250)))
    with pytest.raises(CompletionError, match="prompt has 3201 characters; at most 3200 fit"):
        completer.plan(GenerateText(TextPrompt("x" * 3201)))
