"""LanguageTool's API, under `/v2`: what editors and browser extensions talk to."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from http import HTTPStatus
from typing import TypeVar

import msgspec
from fastapi import APIRouter, Request, Response
from starlette.exceptions import HTTPException

from copydesk.common.rpc import Priority
from copydesk.common.tracing import tracing
from copydesk.gateway.access import Gatekeeper
from copydesk.gateway.correction import SEGMENTS_A_TURN, Correction, Corrector
from copydesk.gateway.faults import ApiError
from copydesk.gateway.http.inbox import ClientGoneError, Inbox
from copydesk.gateway.http.responses import error_headers, json_response
from copydesk.gateway.languagetool import answers, documents
from copydesk.gateway.languagetool.matches import Document, sentences_of
from copydesk.gateway.languagetool.requests import Check, Fields, parse_check, parse_fields
from copydesk.gateway.languagetool.schemas import SoftwareInfo
from copydesk.gateway.service import Gateway
from copydesk.gateway.validation import DEADLINE_HEADER, PRIORITY_HEADER, parse_deadline, parse_priority
from copydesk.text import segments

PREFIX = "/v2/"
CODE_HEADER = "X-Error-Code"
"""Where the stable code of an error is, whose body is text for people."""

_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
_KNOWN = {
    "check": ("GET", "POST"),
    "languages": ("GET",),
    "healthcheck": ("GET",),
    "info": ("GET",),
    "maxtextlength": ("GET",),
}
Found = TypeVar("Found")

_encode = msgspec.json.Encoder().encode


def languagetool_router(gateway: Gateway, gatekeeper: Gatekeeper) -> APIRouter:
    """The routes, for one gateway; a check asks for a key, where keys are on.

    The rest is open to all, since clients ask for it before they have said who they are.
    """
    router = APIRouter()
    _add_check(router, gateway, gatekeeper)
    _add_facts(router, gateway)

    @router.api_route(PREFIX + "{action:path}", methods=_METHODS, include_in_schema=False)
    async def unsupported(action: str) -> Response:
        raise _unsupported(action)

    return router


def plain_error_response(error: ApiError, request_id: str) -> Response:
    """Answer with an error in plain text, as LanguageTool does."""
    headers = error_headers(error) | {CODE_HEADER: error.code}
    if error.status == HTTPStatus.REQUEST_TIMEOUT:
        headers["Connection"] = "close"
    return Response(answers.error_text(error, request_id), error.status, headers, media_type="text/plain")


def _add_check(router: APIRouter, gateway: Gateway, gatekeeper: Gatekeeper) -> None:
    settings = gateway.settings
    software = answers.software()

    @router.post("/v2/check", **documents.check(settings.limits))
    @router.get("/v2/check", **documents.check_by_query(settings.limits))
    async def check(request: Request) -> Response:
        arrived = asyncio.get_running_loop().time()
        inbox: Inbox = request.state.inbox
        allowed_ms = parse_deadline(request.headers.get(DEADLINE_HEADER), settings.deadline_ms, settings.limits)
        priority = parse_priority(request.headers.get(PRIORITY_HEADER))
        body = await inbox.read(settings.max_body_bytes, settings.body_timeout_ms / 1000)
        fields = parse_fields(body, request.scope["query_string"])
        client = _client(gatekeeper, request, fields)
        found = parse_check(fields, settings.max_characters)
        async with gatekeeper.visit(client):
            with tracing.span("/v2/check", request.headers.get("traceparent", "")):
                corrector = gateway.rollout.corrector(dict(request.scope["headers"]), request.state.request_id)
                done = await _correct(corrector, found, arrived + allowed_ms / 1000, priority, inbox)
        corrected = done.texts[0]
        uncut = segments(found.text.plain, max_characters=gateway.corrector.max_characters)
        document = Document(found.text, sentences_of(found.text, await _in_turns(uncut)))
        matches = await _in_turns(document.matches(corrected.edits, found.selection))
        ranges = document.sentence_ranges()
        return json_response(answers.check_answer(software, found, matches, ranges, corrected.skipped))


def _add_facts(router: APIRouter, gateway: Gateway) -> None:
    software = SoftwareInfo(answers.software())
    languages = _encode(answers.languages())

    @router.get("/v2/languages", **documents.languages())
    async def all_languages() -> Response:
        return Response(languages, media_type="application/json")

    @router.get("/v2/info", **documents.info())
    async def info() -> Response:
        return json_response(software)

    @router.get("/v2/maxtextlength", **documents.max_text_length())
    async def max_text_length() -> Response:
        return Response(str(gateway.settings.max_characters), media_type="text/plain")

    @router.get("/v2/healthcheck", **documents.healthcheck())
    async def healthcheck() -> Response:
        missing = gateway.missing()
        if missing is not None:
            raise ApiError(HTTPStatus.SERVICE_UNAVAILABLE, "not_ready", f"{missing}.", retry_after=1)
        return Response("OK", media_type="text/plain")


def _client(gatekeeper: Gatekeeper, request: Request, fields: Fields) -> str:
    """Take a key from the header, else from the field that LanguageTool's clients send; raises `ApiError` 401."""
    headers = dict(request.scope["headers"])
    if b"authorization" not in headers and fields.get("apiKey"):
        return gatekeeper.check(f"Bearer {fields['apiKey']}")
    return gatekeeper.authorize(headers)


async def _correct(
    corrector: Corrector, check: Check, deadline: float, priority: Priority, inbox: Inbox
) -> Correction:
    """Correct the text, unless the client leaves first: then its sentences are cancelled."""
    ended: asyncio.Future[Correction | ApiError] = asyncio.get_running_loop().create_future()
    run = corrector.submit([check.read], deadline, ended.set_result, priority=priority)
    gone = asyncio.ensure_future(inbox.client_gone())
    waiting: set[asyncio.Future[None] | asyncio.Future[Correction | ApiError]] = {ended, gone}
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        gone.cancel()
        if not ended.done():
            run.cancel()
    if not ended.done():
        raise ClientGoneError("the client left before the answer")
    outcome = ended.result()
    if isinstance(outcome, ApiError):
        raise outcome
    return outcome


async def _in_turns(found: Iterator[Found]) -> list[Found]:
    """Return all that `found` yields, some of it each turn of the loop: a long text takes a tenth of a second."""
    everything: list[Found] = []
    while some := list(itertools.islice(found, SEGMENTS_A_TURN)):
        everything += some
        if len(some) == SEGMENTS_A_TURN:
            await asyncio.sleep(0)
    return everything


def _unsupported(action: str) -> ApiError | HTTPException:
    """Say why there is nothing: a wrong method, a personal dictionary, or an address that means nothing."""
    if action in _KNOWN:
        return HTTPException(HTTPStatus.METHOD_NOT_ALLOWED, headers={"Allow": ", ".join(_KNOWN[action])})
    if action == "words" or action.startswith("words/"):
        message = "Personal dictionaries are not kept here: the words of a text stay with its client."
        return ApiError(HTTPStatus.NOT_FOUND, "not_found", message)
    message = f"Unsupported action: {action[:64]!r}. Supported are {', '.join(_KNOWN)}."
    return ApiError(HTTPStatus.NOT_FOUND, "not_found", message)
