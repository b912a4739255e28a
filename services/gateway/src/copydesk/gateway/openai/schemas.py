"""The bodies of OpenAI's APIs, as msgspec structs: they decode, encode, and make the OpenAPI schemas.

Fields that are known and not supported are here too, with the values that mean that they are not used: clients
send them. Every optional field may be null, which is the same as leaving it out.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from copydesk.common.tasks import Stopped

MOST_STOPS = 4
MOST_STOP_CHARACTERS = 1_000
MOST_STOP_IDS = 64

_INT32 = 2**31 - 1
_INT64 = 2**63 - 1

_UNSUPPORTED = Meta(description="not supported; only the value that stands for nothing is taken")

Nothing = Annotated[None, _UNSUPPORTED]
Off = Annotated[bool, Meta(description="not supported; only false", extra_json_schema={"enum": [False]})] | None
Empty = Annotated[str, Meta(max_length=0, description="not supported; only an empty one")] | None
NoList = Annotated[list[Any], Meta(max_length=0, description="not supported; only an empty one")] | None
NoMap = Annotated[dict[str, Any], Meta(max_length=0, description="not supported; only an empty one")] | None
One = Annotated[Literal[1], Meta(description="more than one answer a prompt is not supported")] | None

Count = Annotated[int, Meta(ge=1, le=_INT32)]
TokenId = Annotated[int, Meta(ge=0, le=_INT32)]
Stop = Annotated[str, Meta(min_length=1, max_length=MOST_STOP_CHARACTERS)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
Tag = Annotated[str, Meta(max_length=1024)]

Prompts = str | list[str | TokenId | list[TokenId]]
"""A text, a list of texts, a list of token ids, or a list of such lists; msgspec has one type for all lists."""


class StreamOptions(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Only with `stream`. `include_usage`: a last event tells the usage."""

    include_usage: bool | None = None
    include_obfuscation: Off = None
    continuous_usage_stats: Off = None


class Generation(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What both APIs have: OpenAI's parameters, and vLLM's beyond them."""

    model: Annotated[str, Meta(description="a model of /v1/models; without it, the one served")] | None = None
    max_tokens: Annotated[Count, Meta(description="most tokens of an answer")] | None = None
    temperature: Annotated[float, Meta(ge=0, le=100, description="0 takes the likeliest token")] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    seed: Annotated[int, Meta(ge=-_INT64 - 1, le=_INT64, description="the same gives the same text")] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    stop: (
        Stop | Annotated[list[Stop], Meta(max_length=MOST_STOPS, description="the text ends before them")] | None
    ) = None
    stream: Annotated[bool, Meta(description="answer with server-sent events")] | None = None
    stream_options: StreamOptions | None = None

    top_k: Annotated[int, Meta(ge=-1, le=_INT32, description="vLLM's; 0 and -1: all")] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1, description="vLLM's")] | None = None
    repetition_penalty: Annotated[float, Meta(gt=0, le=10, description="vLLM's")] | None = None
    stop_token_ids: (
        Annotated[list[TokenId], Meta(max_length=MOST_STOP_IDS, description="vLLM's; texts end at them")] | None
    ) = None
    ignore_eos: Annotated[bool, Meta(description="vLLM's; texts go on where the model ends them")] | None = None
    priority: Annotated[Literal["interactive", "batch"], Meta(description="which work waits for which")] | None = (
        None
    )

    user: Annotated[Tag, Meta(description="taken and not used")] | None = None

    n: One = None
    logit_bias: NoMap = None


class CompletionRequest(Generation, kw_only=True):
    """A request to continue each of some texts."""

    prompt: Annotated[Prompts, Meta(description="each text has a choice of its own")]

    best_of: One = None
    echo: Off = None
    logprobs: Off = None
    suffix: Empty = None


class TextPart(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A part of what was said; the parts are put together with line breaks between them."""

    type: Literal["text"]
    text: str


class ChatTurn(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What `role` said; `developer` is the same as `system`. An answer may be sent back as it came."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart]

    annotations: NoList = None
    audio: Nothing = None
    function_call: Nothing = None
    name: Empty = None
    refusal: Empty = None
    tool_call_id: Empty = None
    tool_calls: NoList = None


class ResponseFormat(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Plain text; nothing else is supported."""

    type: Literal["text"]


class ChatRequest(Generation, kw_only=True):
    """A request to answer a conversation."""

    messages: Annotated[list[ChatTurn], Meta(min_length=1, description="the conversation so far")]
    max_completion_tokens: Annotated[Count, Meta(description="the newer name of max_tokens")] | None = None

    metadata: (
        Annotated[
            dict[Annotated[str, Meta(max_length=64)], Annotated[str, Meta(max_length=512)]],
            Meta(max_length=16, description="taken and not used, since nothing is stored"),
        ]
        | None
    ) = None
    parallel_tool_calls: Annotated[bool, Meta(description="without meaning, since there are no tools")] | None = (
        None
    )
    prompt_cache_key: Annotated[Tag, Meta(description="taken and not used")] | None = None
    safety_identifier: Annotated[Tag, Meta(description="taken and not used")] | None = None
    service_tier: Literal["auto", "default"] | None = None

    audio: Nothing = None
    function_call: Literal["none", "auto"] | None = None
    functions: NoList = None
    logprobs: Off = None
    modalities: list[Literal["text"]] | None = None
    prediction: Nothing = None
    prompt_cache_retention: Nothing = None
    reasoning_effort: Nothing = None
    response_format: ResponseFormat | None = None
    store: Off = None
    tool_choice: Literal["none", "auto"] | None = None
    tools: NoList = None
    top_logprobs: Literal[0] | None = None
    verbosity: Nothing = None
    web_search_options: Nothing = None


class TokenUsage(msgspec.Struct, frozen=True):
    """Tokens that went into the model and came out of it, those of all choices together."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class CompletionChoice(msgspec.Struct, frozen=True):
    """The text for one prompt, or a part of it.

    `finish_reason` comes with the end, and with it `stop_reason`: which of the request's own stop strings or
    token ids it was, if any.
    """

    index: int
    text: str
    logprobs: None = None
    finish_reason: Stopped | None = None
    stop_reason: str | int | UnsetType | None = UNSET


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """The texts for a request, or, when streamed, parts of them. `system_fingerprint` names the weights."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: TokenUsage | UnsetType | None = UNSET
    system_fingerprint: str | UnsetType = UNSET


class ChatAnswer(msgspec.Struct, frozen=True):
    """What the model says."""

    content: str
    role: Literal["assistant"] = "assistant"
    refusal: None = None


class ChatChoice(msgspec.Struct, frozen=True):
    """The answer; `finish_reason` and `stop_reason` as in completions."""

    index: int
    message: ChatAnswer
    finish_reason: Stopped
    stop_reason: str | int | None
    logprobs: None = None


class ChatCompletion(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a conversation. `system_fingerprint` names the weights."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: TokenUsage
    system_fingerprint: str | UnsetType = UNSET


class ChatDelta(msgspec.Struct, frozen=True):
    """More of what the model says; the first part tells the role."""

    content: str | UnsetType = UNSET
    role: Literal["assistant"] | UnsetType = UNSET


class ChatChunkChoice(msgspec.Struct, frozen=True):
    """A part of the answer; `finish_reason` and `stop_reason` come with the last."""

    index: int
    delta: ChatDelta
    logprobs: None = None
    finish_reason: Stopped | None = None
    stop_reason: str | int | UnsetType | None = UNSET


class ChatCompletionChunk(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a streamed answer."""

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    choices: list[ChatChunkChoice]
    usage: TokenUsage | UnsetType | None = UNSET
    system_fingerprint: str | UnsetType = UNSET
