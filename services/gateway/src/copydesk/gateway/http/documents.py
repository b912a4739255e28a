"""What the OpenAPI page says: made from the very structs that decode and encode, and from the limits in force."""

from __future__ import annotations

from typing import Any

import msgspec

from copydesk.gateway.http import openai_documents
from copydesk.gateway.http.openai_documents import SCHEMAS as OPENAI_SCHEMAS
from copydesk.gateway.languagetool.documents import SCHEMAS as LANGUAGETOOL_SCHEMAS
from copydesk.gateway.limits import Limits
from copydesk.gateway.openapi import REFERENCE, Arguments, json_answer, reference, request_headers
from copydesk.gateway.schemas import (
    CorrectRequest,
    ErrorBody,
    FleetBody,
    FleetHistory,
    Health,
    ModelList,
    TextAnswer,
    TextsAnswer,
)
from copydesk.gateway.validation import MOST_MS

_ERRORS = {
    400: "The request is wrong; `code`, `param` and `limit` say how.",
    401: "An API key is needed, where this gateway has keys.",
    404: "The model is not served here.",
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    415: "The body is not declared as JSON in UTF-8.",
    429: "The fleet is full, or the key has used up its limits; `Retry-After` says when to come back.",
    500: "A mistake of the gateway's own.",
    502: "A pod failed.",
    503: "No pod can take the work (`no_endpoints`, `pod_unavailable`), or the key cannot be checked now.",
    504: "The deadline passed.",
}


SECURITY = {
    "apiKey": {"type": "http", "scheme": "bearer", "description": "An API key, where this gateway has keys."}
}


def guarded() -> dict[int | str, Any]:
    """What is answered, besides its own answers, by what is behind the API keys."""
    return _errors(401) | {503: json_answer("The key cannot be checked now.", reference(ErrorBody))}


def components(limits: Limits) -> dict[str, Any]:
    """Return the schemas of every body, the limits in force included."""
    own = (CorrectRequest, TextAnswer, TextsAnswer, ErrorBody, ModelList, Health, FleetBody, FleetHistory)
    types = (*own, *LANGUAGETOOL_SCHEMAS, *OPENAI_SCHEMAS)
    _, schemas = msgspec.json.schema_components(types, ref_template=REFERENCE)
    request = schemas["CorrectRequest"]
    request["oneOf"] = [{"required": ["text"]}, {"required": ["texts"]}]
    request["properties"]["text"] |= {"minLength": 1, "maxLength": limits.characters}
    request["properties"]["texts"] |= {"minItems": 1, "maxItems": limits.texts}
    request["properties"]["texts"]["items"] |= {"minLength": 1}
    request["examples"] = [{"text": "She go to school every day."}]
    openai_documents.complete(schemas, limits)
    return schemas


def correct(limits: Limits) -> Arguments:
    """The route of a correction."""
    description = (
        "Corrects one text, or each of several. The text is cut into sentences, which are corrected side by side; "
        "white space stays as it is. Offsets count Unicode code points of the input, and applying the edits gives "
        f"the corrected text exactly. At most {limits.body_bytes} bytes, {limits.texts} texts, and "
        f"{limits.characters} characters in all texts together; no text may be blank or contain NUL."
    )
    return {
        "summary": "Correct text",
        "description": description,
        "responses": {
            200: json_answer("Corrected.", {"oneOf": [reference(TextAnswer), reference(TextsAnswer)]}),
            **_errors(*_ERRORS),
        },
        "openapi_extra": {
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": reference(CorrectRequest)}},
            },
            "parameters": request_headers("Milliseconds that the answer may take; later it is of no use.", limits),
        },
    }


def answer(summary: str, description: str, body: type[msgspec.Struct]) -> Arguments:
    """A route that answers with `body`."""
    return {"summary": summary, "description": description, "responses": {200: json_answer("OK", reference(body))}}


def fleet() -> Arguments:
    """The route of the fleet's view."""
    return answer("Fleet", "The pods as this gateway sees them.", FleetBody)


def history() -> Arguments:
    """The route of the fleet's last minutes."""
    description = "Rates, latencies and scale decisions of the last quarter of an hour, as this gateway saw them."
    arguments = answer("History of the fleet", description, FleetHistory)
    arguments["responses"] |= _errors(400, 401)
    text = "Unix milliseconds, as in `at_ms`: only what ended later is wanted."
    schema = {"type": "integer", "minimum": 0, "maximum": MOST_MS}
    parameter = {"name": "since", "in": "query", "required": False, "description": text, "schema": schema}
    arguments["openapi_extra"] = {"parameters": [parameter]}
    return arguments


def readiness() -> Arguments:
    """The route that tells whether requests can be served."""
    arguments = answer("Readiness", "Whether a pod is ready to work.", Health)
    arguments["responses"][503] = json_answer("No pod is ready, or the gateway is stopping.", reference(Health))
    return arguments


def metrics() -> Arguments:
    """The route that Prometheus scrapes."""
    content = {"text/plain": {"schema": {"type": "string"}}}
    return {
        "summary": "Metrics",
        "description": "Counters and histograms in Prometheus' text format.",
        "responses": {200: {"description": "OK", "content": content}},
    }


def _errors(*statuses: int) -> dict[int | str, Any]:
    return {status: json_answer(_ERRORS[status], reference(ErrorBody)) for status in statuses}
