"""The head of a response on the hot path, with the same fields as on the slow one."""

from __future__ import annotations

import re

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from copydesk.gateway.http.exchange import Headers

CHUNKED = b"transfer-encoding: chunked\r\n"
LAST_CHUNK = b"0\r\n\r\n"

_BREAK = re.compile(rb"[\r\n\0]")


def response_head(
    status: int, *, kind: bytes, framing: bytes, request_id: str, common: bytes, headers: Headers, close: bool
) -> bytes:
    """Return the head, blank line included.

    `framing` is the field that says where the body ends, `common` what stands in every head (the date). Raises
    `ValueError` for a header that would end its own line.
    """
    extra = b""
    for name, value in headers:
        if _BREAK.search(name) or _BREAK.search(value):
            raise ValueError(f"a header must be one line: {name!r}: {value!r}")
        extra += b"%b: %b\r\n" % (name, value)
    return b"%b%bcontent-type: %b\r\n%bx-request-id: %b\r\nx-content-type-options: nosniff\r\n%b%b\r\n" % (
        STATUS_LINE[status],
        common,
        kind,
        framing,
        request_id.encode("ascii"),
        extra,
        b"connection: close\r\n" if close else b"",
    )


def plain_response(body: bytes, request_id: str, common: bytes) -> bytes:
    """Return a whole answer in JSON with status 200 and no header of its own, which is what most answers are."""
    return (
        b"HTTP/1.1 200 OK\r\n%bcontent-type: application/json\r\ncontent-length: %d\r\nx-request-id: %b\r\n"
        b"x-content-type-options: nosniff\r\n\r\n%b"
    ) % (common, len(body), request_id.encode(), body)


def length(body: bytes) -> bytes:
    """Return the field that tells the length of a body."""
    return b"content-length: %d\r\n" % len(body)


def chunk(part: bytes) -> bytes:
    """Return a part of a body whose length is not known before; an empty one would end it."""
    return b"%x\r\n%b\r\n" % (len(part), part)
