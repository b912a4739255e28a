"""The pieces that the descriptions of all APIs on the OpenAPI page are made of."""

from __future__ import annotations

from typing import Any

import msgspec

from copydesk.gateway.limits import Limits
from copydesk.gateway.validation import DEADLINE_HEADER, PRIORITY_HEADER

Arguments = dict[str, Any]
"""What a route is declared with."""

REFERENCE = "#/components/schemas/{name}"


def reference(body: type[msgspec.Struct]) -> dict[str, Any]:
    """Point to the schema of a body."""
    return {"$ref": REFERENCE.format(name=body.__name__)}


def json_answer(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    """An answer in JSON."""
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def deadline_header(description: str, limits: Limits) -> dict[str, Any]:
    """The header that says how long a request may take."""
    return _header(
        DEADLINE_HEADER, description, {"type": "integer", "minimum": 1, "maximum": limits.max_deadline_ms}
    )


def priority_header(description: str) -> dict[str, Any]:
    """The header that says which work waits for which."""
    return _header(PRIORITY_HEADER, description, {"type": "string", "enum": ["interactive", "batch"]})


def request_headers(deadline: str, limits: Limits) -> list[dict[str, Any]]:
    """The headers of requests with a JSON body; `deadline` describes that one."""
    return [
        deadline_header(deadline, limits),
        priority_header("Which work waits for which; the field `priority` goes before it."),
        _header(
            "X-Request-Id",
            "Printable, at most 128 characters; returned, and in every log line. Made up if it is not.",
            {"type": "string", "maxLength": 128},
        ),
    ]


def _header(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "header", "required": False, "description": description, "schema": schema}
