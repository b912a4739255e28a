"""Pages of other origins: which of them a browser lets read the answers (CORS, as in the Fetch standard).

Without a word of the server's, a browser keeps answers from a page that came from elsewhere, and asks by `OPTIONS`
before it sends a request in JSON or with a key at all. There are no cookies here: who may use the gateway is still
for API keys to say.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from copydesk.gateway import faults
from copydesk.gateway.faults import ApiError
from copydesk.gateway.http.exchange import Headers

ANY = "*"

MAX_AGE_S = 7200
"""How long a browser may remember what it was told; Chromium remembers no longer than that."""

_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^\s/?#,@\\]+")
_NAMES = re.compile(rb"[A-Za-z0-9!#$%&'*+.^_`|~, -]{1,4096}")
_DEFAULT_PORTS = (("http://", ":80"), ("https://", ":443"))

_VARY = (b"vary", b"origin")
_EXPOSED = (b"access-control-expose-headers", b"x-request-id, retry-after, x-error-code")
_PREFLIGHT = (
    (b"access-control-allow-methods", b"GET, POST"),
    (b"access-control-max-age", b"%d" % MAX_AGE_S),
)


def usable_origins(listed: str) -> str:
    """Return a list of origins, separated by commas, as browsers spell them. Raises `ValueError`."""
    return ",".join(_spelt(origin.strip()) for origin in listed.split(",") if origin.strip())


class Origins:
    """The origins that are let in, as `usable_origins` returns them; none by default."""

    def __init__(self, listed: str = "") -> None:
        self._allowed = frozenset(origin.encode() for origin in listed.split(",") if origin)
        self._any = ANY.encode() in self._allowed

    def __bool__(self) -> bool:
        return bool(self._allowed)

    def allow(self, origin: bytes) -> bool:
        """Whether pages of an origin may read what is answered."""
        return self._any or origin in self._allowed

    def headers(self, request: Mapping[bytes, bytes]) -> Headers:
        """Return what an answer says to a browser: nothing where no page asked, or where all are kept out."""
        if not self._allowed or b"origin" not in request:
            return ()
        origin = request[b"origin"]
        if not self.allow(origin):
            return (_VARY,)
        return ((b"access-control-allow-origin", origin), _EXPOSED, _VARY)


class Preflight:
    """ASGI middleware that answers a browser which asks whether it may send a request for a page.

    `refuse` makes the answer of an error. What every answer says of origins, those of this one too, `Edge` adds.
    """

    def __init__(self, app: ASGIApp, origins: Origins, refuse: Callable[[Request, ApiError], Response]) -> None:
        self._app = app
        self._origins = origins
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI scope."""
        if self._origins and scope["type"] == "http" and scope["method"] == "OPTIONS":
            headers = dict(scope["headers"])
            if b"origin" in headers and b"access-control-request-method" in headers:
                await self._answer(headers, Request(scope))(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _answer(self, headers: Mapping[bytes, bytes], request: Request) -> Response:
        origin = headers[b"origin"]
        if not self._origins.allow(origin):
            return self._refuse(request, faults.origin_not_allowed(origin.decode("latin-1")))
        response = Response(status_code=HTTPStatus.NO_CONTENT)
        response.raw_headers.extend(_PREFLIGHT)
        wanted = headers.get(b"access-control-request-headers", b"")
        if _NAMES.fullmatch(wanted):  # clients have many of their own, and none of them is a danger here
            response.raw_headers.append((b"access-control-allow-headers", wanted))
        return response


def _spelt(origin: str) -> str:
    if origin == ANY:
        return origin
    spelt = origin.lower()
    if not _ORIGIN.fullmatch(spelt):
        raise ValueError(
            f"{origin!r} is no origin: an origin is a scheme and a host, and a port where it is not the usual "
            "one, with nothing behind, such as https://editor.example or http://localhost:3000; * is all of them"
        )
    for scheme, port in _DEFAULT_PORTS:
        if spelt.startswith(scheme):
            spelt = spelt.removesuffix(port)
    return spelt
