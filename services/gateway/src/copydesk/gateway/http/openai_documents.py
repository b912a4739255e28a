"""What the OpenAPI page says of OpenAI's API: made from the structs that decode and encode."""

from __future__ import annotations

from typing import Any

import msgspec

from copydesk.gateway.limits import Limits
from copydesk.gateway.openai.schemas import (
    ChatCompletion,
    ChatCompletionChunk,
    ChatRequest,
    Completion,
    CompletionRequest,
)
from copydesk.gateway.openapi import Arguments, reference, request_headers
from copydesk.gateway.schemas import ErrorBody, ModelBody

SCHEMAS = (CompletionRequest, Completion, ChatRequest, ChatCompletion, ChatCompletionChunk)
"""The bodies of these routes."""

_ERRORS = {
    400: "The request is wrong, or asks for what is not supported; `code`, `param` and `limit` say how.",
    401: "An API key is needed, where this gateway has keys.",
    404: "The model is not served here.",
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    415: "The body is not declared as JSON in UTF-8.",
    429: "The fleet is full; `Retry-After` says when to come back.",
    500: "A mistake of the gateway's own.",
    502: "A pod failed.",
    503: "No pod can take the work (`no_endpoints`, `pod_unavailable`).",
    504: "The deadline passed.",
}

_STREAM = (
    " With `stream` the answer is server-sent events, `data: {...}`, the last of them `data: [DONE]`; where it "
    "breaks off, the last is an error instead. What is known to OpenAI's API and not supported is refused as "
    "`unsupported_parameter`, unless it has the value that stands for nothing."
)


def complete(schemas: dict[str, Any], limits: Limits) -> None:
    """Say in the schemas of `SCHEMAS` what the types cannot."""
    request = schemas["CompletionRequest"]
    texts = {"type": "string", "minLength": 1}
    ids = {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}}
    request["properties"]["prompt"] = {
        "description": "one text, several, the token ids of one, or those of several; each has its choice",
        "anyOf": [
            texts,
            {"type": "array", "minItems": 1, "maxItems": limits.texts, "items": texts},
            ids,
            {"type": "array", "minItems": 1, "maxItems": limits.texts, "items": ids},
        ],
    }
    request["examples"] = [{"prompt": "Once upon a time", "max_tokens": 16}]
    turns = [{"role": "user", "content": "She go to school every day."}]
    schemas["ChatRequest"]["examples"] = [{"messages": turns, "temperature": 0}]


def completions(limits: Limits) -> Arguments:
    """The route of texts that go on from others."""
    description = "OpenAI's API: continues a text, or each of several." + _STREAM
    return _generation("Continue text", description, CompletionRequest, Completion, Completion, limits)


def chat_completions(limits: Limits) -> Arguments:
    """The route of answers in a conversation."""
    description = "OpenAI's API: answers a conversation, put as the model's own chat template puts it." + _STREAM
    return _generation("Answer a chat", description, ChatRequest, ChatCompletion, ChatCompletionChunk, limits)


def model() -> Arguments:
    """The route of one model."""
    return {
        "summary": "Model",
        "description": "A model that is served here.",
        "responses": {
            200: _answer("OK", {"application/json": ModelBody}),
            404: _answer("It is not served here.", {"application/json": ErrorBody}),
        },
        "openapi_extra": {
            "parameters": [
                {"name": "model", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
            ]
        },
    }


def _generation(
    summary: str,
    description: str,
    request: type[msgspec.Struct],
    whole: type[msgspec.Struct],
    part: type[msgspec.Struct],
    limits: Limits,
) -> Arguments:
    answers = _content({"application/json": whole}) | {"text/event-stream": {"schema": _event(part)}}
    errors = {status: _answer(said, {"application/json": ErrorBody}) for status, said in _ERRORS.items()}
    return {
        "summary": summary,
        "description": description,
        "responses": {
            200: {"description": "The text, or the events that it comes in.", "content": answers},
            **errors,
        },
        "openapi_extra": {
            "requestBody": {"required": True, "content": _content({"application/json": request})},
            "parameters": request_headers("Milliseconds that the whole answer may take.", limits),
        },
    }


def _answer(description: str, bodies: dict[str, type[msgspec.Struct]]) -> dict[str, Any]:
    return {"description": description, "content": _content(bodies)}


def _event(part: type[msgspec.Struct]) -> dict[str, Any]:
    """One event of a stream, as OpenAPI 3.1 describes them: its data is a text, mostly of JSON."""
    schema = {"anyOf": [reference(body) for body in (part, ErrorBody)]}
    json = {"type": "string", "contentMediaType": "application/json", "contentSchema": schema}
    data = {
        "description": "A part of the text; `[DONE]` at the end; the error, where one ends it.",
        "anyOf": [json, {"const": "[DONE]"}],
    }
    return {"type": "object", "required": ["data"], "properties": {"data": data}}


def _content(bodies: dict[str, type[msgspec.Struct]]) -> dict[str, Any]:
    return {kind: {"schema": reference(body)} for kind, body in bodies.items()}
