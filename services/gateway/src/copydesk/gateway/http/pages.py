"""The pages for people: plain files of this package, no byte from elsewhere."""

from __future__ import annotations

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


def pages_router() -> APIRouter:
    """The playground at `/`, the API's description at `/docs`, and their files."""
    router = APIRouter(include_in_schema=False)
    contents = {path.name: path.read_bytes() for path in files("copydesk.gateway").joinpath("page").iterdir()}

    def page(name: str) -> Response:
        kind = f"{_TYPES[name.rpartition('.')[2]]}; charset=utf-8"
        return Response(contents[name], headers={"Content-Type": kind, **SECURITY_HEADERS})

    @router.get("/")
    async def playground() -> Response:
        return page("index.html")

    @router.get("/docs")
    async def reference() -> Response:
        return page("reference.html")

    @router.get("/assets/{name}")
    async def asset(request: Request, name: str) -> Response:
        if name not in contents:
            raise not_found(request.url.path)
        return page(name)

    return router
