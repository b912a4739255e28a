"""Models, health, metrics and the view of the fleet."""

from __future__ import annotations

import time
from http import HTTPStatus

from fastapi import APIRouter, Request, Response

from copydesk.gateway.faults import model_not_found
from copydesk.gateway.http import documents, openai_documents
from copydesk.gateway.http.responses import json_response
from copydesk.gateway.schemas import Health, ModelBody, ModelList
from copydesk.gateway.service import Gateway
from copydesk.gateway.validation import parse_since

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def guarded_router(gateway: Gateway) -> APIRouter:
    """What tells about the fleet: behind the API keys, where there are any."""
    router = APIRouter()
    created = int(time.time())

    def model() -> ModelBody:
        return ModelBody(gateway.fleet.model, gateway.fleet.digest, created)

    @router.get("/v1/models", **documents.answer("Models", "The models served here.", ModelList))
    async def models() -> Response:
        return json_response(ModelList([model()]))

    @router.get("/v1/models/{model:path}", **openai_documents.model())
    async def named(request: Request) -> Response:
        name = request.path_params["model"]
        if name != gateway.fleet.model:
            raise model_not_found(name, gateway.fleet.model)
        return json_response(model())

    @router.get("/v1/fleet", **documents.fleet())
    async def fleet() -> Response:
        return json_response(gateway.fleet_view())

    @router.get("/v1/fleet/history", **documents.history())
    async def history(request: Request) -> Response:
        return json_response(gateway.history.body(parse_since(request.query_params.get("since"))))

    @router.get("/metrics", **documents.metrics())
    async def metrics() -> Response:
        return Response(gateway.render_metrics(), headers={"Content-Type": METRICS_TYPE})

    return router


def health_router(gateway: Gateway) -> APIRouter:
    """What tells supervisors whether the process lives, and whether it can serve."""
    router = APIRouter()

    @router.get("/healthz", **documents.answer("Liveness", "The process answers.", Health))
    async def healthz() -> Response:
        return json_response(Health("ok"))

    @router.get("/readyz", **documents.readiness())
    async def readyz() -> Response:
        missing = gateway.missing()
        if missing is None:
            return json_response(Health("ok"))
        return json_response(Health(missing), HTTPStatus.SERVICE_UNAVAILABLE)

    return router
