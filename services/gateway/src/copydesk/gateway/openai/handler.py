"""The two endpoints as the hot path calls them: a request in, the answer by callbacks."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from copydesk.gateway.http.exchange import Exchange, Handler, header
from copydesk.gateway.openai.forms import ChatForm, CompletionForm, Form, Heading
from copydesk.gateway.openai.run import Reply, Run
from copydesk.gateway.openai.streaming import StreamedReply
from copydesk.gateway.openai.validation import Job, parse_chat, parse_completion
from copydesk.gateway.openai.whole import WholeReply
from copydesk.gateway.paths import CHAT_COMPLETIONS, COMPLETIONS
from copydesk.gateway.service import Gateway
from copydesk.gateway.submits import Submits
from copydesk.gateway.validation import (
    DEADLINE_HEADER,
    PRIORITY_HEADER,
    parse_deadline,
    parse_priority,
)

_DEADLINE = DEADLINE_HEADER.lower().encode()
_PRIORITY = PRIORITY_HEADER.lower().encode()

Parse = Callable[[bytes, str], Job]


def handlers(gateway: Gateway, clock: Callable[[], float] = time.time) -> dict[str, Handler]:
    """The handlers by path; `clock` gives Unix seconds."""
    completions = partial(parse_completion, most_prompts=gateway.settings.limits.texts)
    return {
        COMPLETIONS: Endpoint(gateway, completions, CompletionForm(), clock),
        CHAT_COMPLETIONS: Endpoint(gateway, parse_chat, ChatForm(), clock),
    }


class Endpoint:
    """Takes requests of one API for one gateway."""

    def __init__(self, gateway: Gateway, parse: Parse, form: Form, clock: Callable[[], float]) -> None:
        self._gateway = gateway
        self._limits = gateway.settings.limits
        self._parse = parse
        self._form = form
        self._clock = clock

    def __call__(self, exchange: Exchange) -> None:
        """Start a request. Raises `ApiError` for one that is wrong."""
        settings = self._gateway.settings
        allowed_ms = parse_deadline(header(exchange, _DEADLINE), settings.deadline_ms, self._limits)
        job = self._parse(exchange.body, settings.model)
        dispatcher: Submits = self._gateway.dispatcher
        if self._gateway.rollout.split is not None and not job.stream:
            dispatcher = self._gateway.rollout.dispatcher(exchange.headers, exchange.request_id)
        run = Run(
            dispatcher,
            job,
            self._reply(exchange, job),
            deadline=exchange.arrived + allowed_ms / 1000,
            priority=parse_priority(header(exchange, _PRIORITY), job.priority),
            concurrency=settings.request_concurrency,
            request_id=exchange.request_id,
        )
        exchange.on_gone = run.cancel
        run.start()

    def _reply(self, exchange: Exchange, job: Job) -> Reply:
        name = self._form.id_prefix + exchange.request_id
        heading = Heading(name, int(self._clock()), self._gateway.settings.model)
        if job.stream:
            return StreamedReply(exchange, self._form, heading, include_usage=job.include_usage)
        return WholeReply(exchange, self._form, heading)
