"""Responses from msgspec structs, and from errors."""

from __future__ import annotations

from http import HTTPStatus

import msgspec
from msgspec import UNSET
from starlette.responses import Response

from copydesk.gateway.faults import ApiError
from copydesk.gateway.schemas import ErrorBody, ErrorDetail

_encode = msgspec.json.Encoder().encode


def json_response(
    body: msgspec.Struct, status: int = HTTPStatus.OK, headers: dict[str, str] | None = None
) -> Response:
    """Answer with a JSON body."""
    return Response(_encode(body), status, headers, media_type="application/json")


def error_response(error: ApiError, request_id: str) -> Response:
    """Answer with an error in OpenAI's shape."""
    headers = error_headers(error)
    if error.status == HTTPStatus.REQUEST_TIMEOUT:
        headers["Connection"] = "close"
    return Response(error_content(error, request_id), error.status, headers, media_type="application/json")


def error_content(error: ApiError, request_id: str) -> bytes:
    """Return the body of an error; that of a 500 names the request id, because the log has the rest."""
    message = error.message
    if error.status == HTTPStatus.INTERNAL_SERVER_ERROR:
        message = f"{message} The request id is {request_id}."
    return _encode(ErrorBody(_detail(error, message)))


def error_bytes(error: ApiError) -> bytes:
    """Return the whole answer to what is no request yet, for its connection to be closed after it."""
    body = _encode(error_body(error))
    phrase = HTTPStatus(error.status).phrase
    head = f"HTTP/1.1 {error.status} {phrase}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
    return head.encode() + b"connection: close\r\n\r\n" + body


def error_body(error: ApiError) -> ErrorBody:
    """Return an error in OpenAI's shape, for where it is not a response of its own."""
    return ErrorBody(_detail(error, error.message))


def _detail(error: ApiError, message: str) -> ErrorDetail:
    limit = UNSET if error.limit is None else error.limit
    return ErrorDetail(message, error.type, error.param, error.code, limit)


def error_headers(error: ApiError) -> dict[str, str]:
    """Return what an error says in headers."""
    headers = {}
    if error.retry_after is not None:
        headers["Retry-After"] = str(error.retry_after)
    if error.status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    return headers
