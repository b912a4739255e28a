"""From the bytes of a request to the tasks that pods are given, or to the error that says what is wrong.

Pure: no I/O, nothing of HTTP. Decoding is msgspec's in one pass, which also holds values to their bounds; only a
body that it refuses is looked at again, to say where.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from copydesk.common.tasks import ChatMessage, ChatPrompt, GenerateText, TextPrompt, TokenPrompt
from copydesk.gateway.faults import bad_request, model_not_found
from copydesk.gateway.openai.refusals import UNSUPPORTED, explain, unsupported
from copydesk.gateway.openai.schemas import ChatRequest, CompletionRequest, Generation, Prompts, TextPart
from copydesk.gateway.validation import undecodable

COMPLETION_TOKENS = 16
"""What OpenAI's completions, other than its chats, have for `max_tokens` by default."""

Prompt = TextPrompt | TokenPrompt | ChatPrompt
_Request = TypeVar("_Request", bound=Generation)

_decode_completion = msgspec.json.Decoder(CompletionRequest)
_decode_chat = msgspec.json.Decoder(ChatRequest)
_encode = msgspec.msgpack.Encoder().encode

_FIELDS = {"stop_ids": "stop_token_ids"}
_NEWER_FIELDS = _FIELDS | {"max_tokens": "max_completion_tokens"}


class Job(msgspec.Struct, frozen=True):
    """What a request comes to: `payloads` are the tasks for pods, one a choice, encoded.

    `priority` is the client's word, if it said one. `fields` are the client's names of what pods call otherwise,
    `several` whether `prompt` was a list of prompts.
    """

    payloads: tuple[bytes, ...]
    stream: bool
    include_usage: bool
    priority: str | None
    fields: Mapping[str, str]
    several: bool = False

    def fields_of(self, choice: int) -> Mapping[str, str]:
        """`fields`, with the place of that choice's prompt."""
        return {**self.fields, "prompt": f"prompt[{choice}]"} if self.several else self.fields


def parse_completion(body: bytes, model: str, *, most_prompts: int) -> Job:
    """The job that the body of a request to `/v1/completions` asks for; `model` is the one served.

    Raises `ApiError`, always a 4xx.
    """
    request = _decode(_decode_completion, body)
    _check(request, model)
    _check_off(("echo", request.echo), ("logprobs", request.logprobs))
    prompts, several = _prompts(request.prompt, most_prompts)
    max_tokens = COMPLETION_TOKENS if request.max_tokens is None else request.max_tokens
    payloads = _payloads(request, prompts, max_tokens, body)
    return _job(request, payloads, _FIELDS, several=several)


def parse_chat(body: bytes, model: str) -> Job:
    """The job that the body of a request to `/v1/chat/completions` asks for; `model` is the one served.

    Raises `ApiError`, always a 4xx.
    """
    request = _decode(_decode_chat, body)
    _check(request, model)
    _check_off(("logprobs", request.logprobs), ("store", request.store))
    newer, older = request.max_completion_tokens, request.max_tokens
    if newer is not None and older is not None and newer != older:
        message = "max_tokens and max_completion_tokens are two names of one limit, and differ."
        raise bad_request("invalid_value", message, param="max_tokens")
    said = [ChatMessage(turn.role, _said(turn.content)) for turn in request.messages]
    payloads = _payloads(request, [ChatPrompt(said)], older if newer is None else newer, body)
    return _job(request, payloads, _FIELDS if newer is None else _NEWER_FIELDS)


def _decode(decoder: msgspec.json.Decoder[_Request], body: bytes) -> _Request:
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise explain(str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise undecodable(body, error) from None


def _check(request: Generation, model: str) -> None:
    """Check what both requests have and no decoder can."""
    if request.model is not None and request.model != model:
        raise model_not_found(request.model, model)
    options = request.stream_options
    if options is None:
        return
    if not request.stream:
        message = "stream_options may be given only with stream: true."
        raise bad_request("invalid_value", message, param="stream_options")
    _check_off(
        ("stream_options.include_obfuscation", options.include_obfuscation),
        ("stream_options.continuous_usage_stats", options.continuous_usage_stats),
    )


def _check_off(*switches: tuple[str, bool | None]) -> None:
    for name, value in switches:
        if value:
            raise unsupported(name, UNSUPPORTED[name])


def _prompts(prompt: Prompts, most: int) -> tuple[Sequence[Prompt], bool]:
    """The prompts, and whether they came as a list of several, be it of one."""
    if isinstance(prompt, str) or not prompt:
        return [_prompt("prompt", prompt)], False
    if len(set(map(type, prompt))) > 1:
        message = "prompt: its items must all be texts, or all token ids, or all lists of token ids."
        raise bad_request("invalid_type", message, param="prompt")
    if isinstance(prompt[0], int):
        return [_prompt("prompt", prompt)], False
    if len(prompt) > most:
        message = f"{len(prompt)} prompts are too many: at most {most}."
        raise bad_request("too_many_prompts", message, param="prompt", limit=most)
    return [_prompt(f"prompt[{index}]", item) for index, item in enumerate(prompt)], True


def _prompt(param: str, prompt: object) -> Prompt:
    if not prompt:
        raise bad_request("empty_prompt", f"{param} is empty: there is nothing to go on from.", param=param)
    return TextPrompt(prompt) if isinstance(prompt, str) else TokenPrompt(prompt)  # type: ignore[arg-type]


def _said(content: str | list[TextPart]) -> str:
    return content if isinstance(content, str) else "\n".join(part.text for part in content)


def _payloads(
    request: Generation, prompts: Sequence[Prompt], max_tokens: int | None, body: bytes
) -> tuple[bytes, ...]:
    try:
        return tuple(_encode(_task(request, prompt, max_tokens)) for prompt in prompts)
    except UnicodeEncodeError as error:  # a lone surrogate, which the decoder takes
        raise undecodable(body, error) from None


def _task(request: Generation, prompt: Prompt, max_tokens: int | None) -> GenerateText:
    stop = request.stop or []
    return GenerateText(
        prompt,
        max_tokens=max_tokens,
        temperature=_or(request.temperature, 1.0),
        top_p=_or(request.top_p, 1.0),
        top_k=request.top_k or 0,
        min_p=request.min_p or 0.0,
        seed=request.seed,
        presence_penalty=request.presence_penalty or 0.0,
        frequency_penalty=request.frequency_penalty or 0.0,
        repetition_penalty=_or(request.repetition_penalty, 1.0),
        stop=[stop] if isinstance(stop, str) else stop,
        stop_ids=request.stop_token_ids or [],
        stream=bool(request.stream),
        ignore_eos=bool(request.ignore_eos),
    )


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


def _job(
    request: Generation, payloads: tuple[bytes, ...], fields: Mapping[str, str], *, several: bool = False
) -> Job:
    options = request.stream_options
    include_usage = options is not None and bool(options.include_usage)
    return Job(payloads, bool(request.stream), include_usage, request.priority, fields, several)
