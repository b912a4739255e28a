"""`POST /v1/correct`."""

from __future__ import annotations

import asyncio
from time import perf_counter

import msgspec
from fastapi import APIRouter, Request, Response

from copydesk.gateway.correction import CorrectedText, Correction
from copydesk.gateway.faults import ApiError
from copydesk.gateway.http import documents
from copydesk.gateway.http.inbox import ClientGoneError, Inbox
from copydesk.gateway.http.responses import json_response
from copydesk.gateway.schemas import CorrectedText as CorrectedTextBody
from copydesk.gateway.schemas import EditBody, SkippedBody, TextAnswer, TextsAnswer, Usage
from copydesk.gateway.service import Gateway
from copydesk.gateway.validation import DEADLINE_HEADER, Task, check_content_type, parse_deadline, parse_task


def correct_router(gateway: Gateway) -> APIRouter:
    """The route, for one gateway."""
    router = APIRouter()
    settings = gateway.settings

    @router.post("/v1/correct", **documents.correct(gateway.settings.limits))
    async def correct(request: Request) -> Response:
        started = perf_counter()
        arrived = asyncio.get_running_loop().time()
        inbox: Inbox = request.state.inbox
        check_content_type(request.headers.get("content-type"))
        allowed_ms = parse_deadline(request.headers.get(DEADLINE_HEADER), settings.deadline_ms, settings.limits)
        body = await inbox.read(settings.max_body_bytes, settings.body_timeout_ms / 1000)
        task = parse_task(body, settings.limits, settings.model)
        correction = await _run(gateway, task, arrived + allowed_ms / 1000, inbox)
        latency_ms = round((perf_counter() - started) * 1000, 3)
        return json_response(_answer(task, correction, request.state.request_id, settings.model, latency_ms))

    return router


async def _run(gateway: Gateway, task: Task, deadline: float, inbox: Inbox) -> Correction:
    """Correct, unless the client leaves first: then its sentences are cancelled."""
    ended: asyncio.Future[Correction | ApiError] = asyncio.get_running_loop().create_future()
    run = gateway.corrector.submit(task.texts, deadline, ended.set_result)
    gone = asyncio.ensure_future(inbox.client_gone())
    try:
        await asyncio.wait([ended, gone], return_when=asyncio.FIRST_COMPLETED)  # type: ignore[type-var]
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


def _answer(task: Task, done: Correction, request_id: str, model: str, latency_ms: float) -> msgspec.Struct:
    total = done.prompt_tokens + done.completion_tokens
    usage = Usage(done.prompt_tokens, done.completion_tokens, total, done.sentences)
    texts = [_text(text) for text in done.texts]
    if not task.single:
        return TextsAnswer(request_id, model, done.digest, texts, usage, latency_ms)
    only = texts[0]
    return TextAnswer(request_id, model, done.digest, only.corrected, only.edits, only.skipped, usage, latency_ms)


def _text(text: CorrectedText) -> CorrectedTextBody:
    edits = [EditBody(edit.start, edit.end, edit.replacement) for edit in text.edits]
    skipped = [SkippedBody(part.start, part.end, part.reason) for part in text.skipped]
    return CorrectedTextBody(text.corrected, edits, skipped)
