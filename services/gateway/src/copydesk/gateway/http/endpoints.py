"""What is served on the hot path, and through ASGI to those who come another way: paths, handlers, documents."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fastapi import APIRouter

from copydesk.gateway.access import admitting
from copydesk.gateway.http import documents, openai_documents
from copydesk.gateway.http.bridge import bridge
from copydesk.gateway.http.correct import Correct
from copydesk.gateway.http.exchange import Handler
from copydesk.gateway.http.traced import traced
from copydesk.gateway.openai.handler import handlers as openai_handlers
from copydesk.gateway.openapi import Arguments
from copydesk.gateway.paths import CHAT_COMPLETIONS, COMPLETIONS, CORRECT
from copydesk.gateway.service import Gateway
from copydesk.gateway.settings import GatewaySettings


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A path that takes `POST`, with what handles it and what the OpenAPI page says of it."""

    path: str
    handler: Handler
    document: Arguments


def endpoints(gateway: Gateway) -> list[Endpoint]:
    """The endpoints of a gateway."""
    limits = gateway.settings.limits
    openai = openai_handlers(gateway)
    found = [
        Endpoint(CORRECT, Correct(gateway), documents.correct(limits)),
        Endpoint(COMPLETIONS, openai[COMPLETIONS], openai_documents.completions(limits)),
        Endpoint(CHAT_COMPLETIONS, openai[CHAT_COMPLETIONS], openai_documents.chat_completions(limits)),
    ]
    return [
        replace(endpoint, handler=admitting(traced(endpoint.handler), gateway.gatekeeper)) for endpoint in found
    ]


def endpoints_router(found: list[Endpoint], settings: GatewaySettings) -> APIRouter:
    """The endpoints as FastAPI's routes."""
    router = APIRouter()
    for endpoint in found:
        router.post(endpoint.path, name=_name(endpoint), **endpoint.document)(bridge(endpoint.handler, settings))
    return router


def _name(endpoint: Endpoint) -> str:
    return endpoint.path.removeprefix("/v1/").replace("/", "_")
