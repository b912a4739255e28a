"""`POST /v1/correct`."""

from __future__ import annotations

from functools import partial
from time import perf_counter

import msgspec

from copydesk.gateway.correction import CorrectedText, Correction
from copydesk.gateway.faults import ApiError
from copydesk.gateway.http.exchange import Exchange, header
from copydesk.gateway.schemas import CorrectedText as CorrectedTextBody
from copydesk.gateway.schemas import EditBody, SkippedBody, TextAnswer, TextsAnswer, Usage
from copydesk.gateway.service import Gateway
from copydesk.gateway.validation import (
    DEADLINE_HEADER,
    PRIORITY_HEADER,
    Task,
    parse_deadline,
    parse_priority,
    parse_task,
)

_DEADLINE = DEADLINE_HEADER.lower().encode()
_PRIORITY = PRIORITY_HEADER.lower().encode()

_encode = msgspec.json.Encoder().encode


class Correct:
    """Handles requests for one gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._corrector = gateway.corrector
        self._rollout = gateway.rollout
        self._model = gateway.settings.model
        self._limits = gateway.settings.limits
        self._deadline_ms = gateway.settings.deadline_ms

    def __call__(self, exchange: Exchange) -> None:
        """Start a correction. Raises `ApiError` for a request that is wrong."""
        started = perf_counter()
        allowed_ms = parse_deadline(header(exchange, _DEADLINE), self._deadline_ms, self._limits)
        task = parse_task(exchange.body, self._limits, self._model)
        corrector = self._corrector
        if self._rollout.split is not None:
            corrector = self._rollout.corrector(exchange.headers, exchange.request_id)
        run = corrector.submit(
            task.texts,
            exchange.arrived + allowed_ms / 1000,
            partial(self._answer, exchange, task, started),
            priority=parse_priority(header(exchange, _PRIORITY), task.priority),
        )
        exchange.on_gone = run.cancel

    def _answer(self, exchange: Exchange, task: Task, started: float, outcome: Correction | ApiError) -> None:
        if isinstance(outcome, ApiError):
            exchange.fail(outcome)
            return
        latency_ms = round((perf_counter() - started) * 1000, 3)
        exchange.respond(_encode(_body(task, outcome, exchange.request_id, self._model, latency_ms)))


def _body(task: Task, done: Correction, request_id: str, model: str, latency_ms: float) -> msgspec.Struct:
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
