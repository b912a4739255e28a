"""The FastAPI application."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from fastapi import Depends, FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from copydesk.gateway import faults
from copydesk.gateway.access import Gatekeeper
from copydesk.gateway.faults import CLIENT_GONE, ApiError
from copydesk.gateway.http.documents import SECURITY, components, guarded
from copydesk.gateway.http.edge import Edge
from copydesk.gateway.http.endpoints import endpoints, endpoints_router
from copydesk.gateway.http.hot import HotPath
from copydesk.gateway.http.inbox import ClientGoneError
from copydesk.gateway.http.languagetool import PREFIX, languagetool_router, plain_error_response
from copydesk.gateway.http.operations import guarded_router, health_router
from copydesk.gateway.http.origins import Preflight
from copydesk.gateway.http.pages import pages_router
from copydesk.gateway.http.responses import error_response
from copydesk.gateway.keys import KeyRing
from copydesk.gateway.service import Gateway

DESCRIPTION = (
    "Corrects the grammar of English text. Errors have OpenAI's shape, with stable codes; under /v2, which is "
    "LanguageTool's API, they are plain text, and the code is in the header `X-Error-Code`."
)

GUARDED = ("/v1/", "/v2/check", "/metrics")
"""How the paths begin for which a key is needed, where there are keys."""


def build_app(gateway: Gateway, keys: KeyRing | None) -> ASGIApp:
    """Return the ASGI application of a gateway; with `keys`, what is under /v1 and the metrics ask for one."""
    app = _Documented(
        gateway,
        title="Copydesk",
        description=DESCRIPTION,
        version=version("copydesk-gateway"),
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    gatekeeper = _gatekeeper(gateway, keys)
    guard = [Depends(_require_key(gatekeeper))]
    app.include_router(endpoints_router(endpoints(gateway), gateway.settings), dependencies=guard)
    app.include_router(guarded_router(gateway), dependencies=guard, responses=guarded())
    app.include_router(languagetool_router(gateway, gatekeeper))
    app.include_router(health_router(gateway))
    app.include_router(pages_router())
    app.add_exception_handler(ApiError, _on_api_error)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(ClientGoneError, _on_client_gone)
    app.add_exception_handler(Exception, _on_unexpected)
    origins = gateway.settings.origins
    return Edge(Preflight(app, origins, _answer), gateway.metrics, gateway.lifecycle, origins)


def build_hot_path(gateway: Gateway, keys: KeyRing | None) -> HotPath:
    """Return the way that most requests take, past the application; the same handlers, the same keys."""
    return HotPath(
        {endpoint.path: endpoint.handler for endpoint in endpoints(gateway)},
        authorize=_gatekeeper(gateway, keys).authorize,
        metrics=gateway.metrics,
        lifecycle=gateway.lifecycle,
        max_body_bytes=gateway.settings.max_body_bytes,
        body_timeout=gateway.settings.body_timeout_ms / 1000,
        epoch=lambda: gateway.gatekeeper.ring,
        lane=gateway.lane,
        resuming=gateway.dispatcher.resuming,
        origins=gateway.settings.origins,
    )


class _Documented(FastAPI):
    """FastAPI whose OpenAPI document has the schemas of the bodies, which it never sees itself."""

    def __init__(self, gateway: Gateway, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._settings = gateway.settings

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            document = super().openapi()
            parts = document.setdefault("components", {})
            parts.setdefault("schemas", {}).update(components(self._settings.limits))
            parts["securitySchemes"] = SECURITY
            free: list[dict[str, Any]] = [] if self._settings.asks_for_keys else [{}]
            for path, operations in document["paths"].items():
                if path.startswith(GUARDED):
                    for operation in operations.values():
                        operation["security"] = [*free, {name: [] for name in SECURITY}]
        assert self.openapi_schema is not None
        return self.openapi_schema


def _gatekeeper(gateway: Gateway, keys: KeyRing | None) -> Gatekeeper:
    if keys is not None:
        gateway.gatekeeper.use(keys)
    return gateway.gatekeeper


def _require_key(gatekeeper: Gatekeeper) -> Any:
    async def require_key(request: Request) -> None:
        request.state.key_name = gatekeeper.authorize(dict(request.scope["headers"]))

    return require_key


async def _on_api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return _answer(request, error)


async def _on_http_error(request: Request, error: Exception) -> Response:
    """Put what the router raises (404, 405) into the shape of all errors."""
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        found = faults.not_found(request.url.path)
    elif error.status_code == 405:
        found = faults.method_not_allowed(request.method, request.url.path)
    else:
        found = ApiError(error.status_code, "http_error", str(error.detail))
    response = _answer(request, found)
    response.headers.update(error.headers or {})
    return response


async def _on_client_gone(_request: Request, _error: Exception) -> Response:
    return Response(status_code=CLIENT_GONE)


async def _on_unexpected(request: Request, _error: Exception) -> Response:
    return _answer(request, faults.unexpected())


def _answer(request: Request, error: ApiError) -> Response:
    """Answer in the shape of the API that was asked: plain text under LanguageTool's, else OpenAI's."""
    request.state.error = error
    respond = plain_error_response if request.scope["path"].startswith(PREFIX) else error_response
    return respond(error, request.state.request_id)
