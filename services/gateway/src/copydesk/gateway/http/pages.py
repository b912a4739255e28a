"""The pages for people: plain files of this package, no byte from elsewhere."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from http import HTTPStatus
from importlib.resources import files

from fastapi import APIRouter, Request, Response

from copydesk.gateway.faults import not_found

SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}

_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
_PAGES = {"/": "index.html", "/fleet": "fleet.html", "/docs": "reference.html"}


@dataclass(frozen=True, slots=True)
class _File:
    """A file with what its answers carry; the tag spares a browser that has it all but a short answer."""

    body: bytes
    headers: dict[str, str]

    @classmethod
    def of(cls, name: str, body: bytes) -> _File:
        kind = f"{_TYPES[name.rpartition('.')[2]]}; charset=utf-8"
        tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        return cls(body, {"Content-Type": kind, "ETag": tag, **SECURITY_HEADERS})

    def answer(self, request: Request) -> Response:
        if request.headers.get("if-none-match") == self.headers["ETag"]:
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=self.headers)
        return Response(self.body, headers=self.headers)


def pages_router() -> APIRouter:
    """To write at `/`, the fleet at `/fleet`, the API's description at `/docs`, and their files."""
    router = APIRouter(include_in_schema=False)
    folder = files("copydesk.gateway").joinpath("page")
    found = {path.name: _File.of(path.name, path.read_bytes()) for path in folder.iterdir()}

    async def page(request: Request) -> Response:
        return found[_PAGES[request.scope["path"]]].answer(request)

    for path in _PAGES:
        router.add_api_route(path, page, methods=["GET"])

    @router.get("/assets/{name}")
    async def asset(request: Request, name: str) -> Response:
        if name not in found:
            raise not_found(request.url.path)
        return found[name].answer(request)

    return router
