"""What the OpenAPI page says of LanguageTool's API: made from the structs that decode and encode."""

from __future__ import annotations

from typing import Any

import msgspec

from copydesk.gateway.languagetool.schemas import CheckableLanguage, CheckAnswer, CheckForm, SoftwareInfo
from copydesk.gateway.limits import Limits
from copydesk.gateway.openapi import (
    Arguments,
    deadline_header,
    json_answer,
    priority_header,
    reference,
)

SCHEMAS = (CheckForm, CheckAnswer, CheckableLanguage, SoftwareInfo)
"""The bodies of these routes."""

_TEXT = {"text/plain": {"schema": {"type": "string"}}}
_CHECK_ERRORS = {
    400: "The request is wrong.",
    401: "An API key is needed, where this gateway has keys.",
    408: "The body did not arrive in time.",
    413: "The text or the body is too long.",
    429: "The fleet is full; `Retry-After` says when to come back.",
    500: "A mistake of the gateway's own.",
    502: "A pod failed.",
    503: "No pod can take the work; `Retry-After` says when to come back.",
    504: "The deadline passed.",
}


def check(limits: Limits) -> Arguments:
    """The route of a check, by POST."""
    form = {"application/x-www-form-urlencoded": {"schema": reference(CheckForm)}}
    body = {"required": True, "content": form}
    return _check(limits) | {"openapi_extra": {"requestBody": body, "parameters": _headers(limits)}}


def check_by_query(limits: Limits) -> Arguments:
    """The route of a check by GET, for a few words: an address is written into many a log."""
    return _check(limits) | {"openapi_extra": {"parameters": [*_query(), *_headers(limits)]}}


def languages() -> Arguments:
    """The route of the languages."""
    schema = {"type": "array", "items": reference(CheckableLanguage)}
    return {
        "summary": "Languages",
        "description": "What `language` of a check may be, besides `auto`.",
        "responses": {200: json_answer("OK", schema)},
    }


def info() -> Arguments:
    """The route about the software."""
    return {
        "summary": "Software",
        "description": "What answers here, and its version.",
        "responses": {200: json_answer("OK", reference(SoftwareInfo))},
    }


def max_text_length() -> Arguments:
    """The route of the limit on a text."""
    return _plain("Longest text", "The most characters of a text, markup not counted.")


def healthcheck() -> Arguments:
    """The route that says whether texts can be checked."""
    arguments = _plain("Health", "`OK` where a text can be checked now.")
    arguments["responses"][503] = {"description": "No pod is ready, or the gateway is stopping.", "content": _TEXT}
    return arguments


def _check(limits: Limits) -> Arguments:
    description = (
        "LanguageTool's API: finds what a correction would change, each change a match with a rule by its kind. "
        "Offsets count UTF-16 code units; putting the first replacement of every match in its place gives the "
        f"corrected text. At most {limits.characters} characters of text and {limits.body_bytes} bytes."
    )
    schema = reference(CheckAnswer)
    errors = {status: {"description": said, "content": _TEXT} for status, said in _CHECK_ERRORS.items()}
    return {
        "summary": "Check a text",
        "description": description,
        "responses": {200: json_answer("OK", schema), **errors},
    }


def _headers(limits: Limits) -> list[dict[str, Any]]:
    return [
        deadline_header("Milliseconds that the answer may take.", limits),
        priority_header("Which work waits for which."),
    ]


def _query() -> list[dict[str, Any]]:
    fields = msgspec.json.schema(CheckForm)["$defs"][CheckForm.__name__]["properties"]
    return [
        {
            "name": name,
            "in": "query",
            "required": name == "language",
            "description": field["description"],
            "schema": {"type": field["type"]},
        }
        for name, field in fields.items()
    ]


def _plain(summary: str, description: str) -> Arguments:
    return {
        "summary": summary,
        "description": description,
        "responses": {200: {"description": "OK", "content": _TEXT}},
    }
