"""An answer that is sent as it is made, by server-sent events.

What pods send comes in bursts, and an event a token costs more than the token: so what has come in one turn of the
event loop goes out as one event a text.
See https://html.spec.whatwg.org/multipage/server-sent-events.html, and OpenAI's reference for what is in them.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import msgspec
from msgspec import UNSET

from copydesk.gateway.faults import ApiError
from copydesk.gateway.http.exchange import Exchange
from copydesk.gateway.http.responses import error_body
from copydesk.gateway.openai.forms import Ended, Form, Heading, UsageField, usage_of

KIND = b"text/event-stream; charset=utf-8"
HEADERS = ((b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no"))
"""The second asks nginx not to collect events before it passes them on."""

DONE = b"data: [DONE]\n\n"

_encode = msgspec.json.Encoder().encode


def event(body: msgspec.Struct) -> bytes:
    """One server-sent event: JSON has no line break that could end it early."""
    return b"data: %b\n\n" % _encode(body)


@dataclass(slots=True)
class _Choice:
    """One text on its way out: what waits to be sent, and how many characters were handed over."""

    waiting: list[str] = field(default_factory=list)
    characters: int = 0
    begun: bool = False
    ended: Ended | None = None
    closed: bool = False

    def add(self, text: str) -> None:
        self.waiting.append(text)
        self.characters += len(text)

    @property
    def has_news(self) -> bool:
        return bool(self.waiting) or (self.ended is not None and not self.closed)


class StreamedReply:
    """Sends texts as they come. Nothing is sent before the first text, so that an error before it has its status.

    An error after it is an event of its own, and the last: without `[DONE]`, no client takes what it has for all.
    """

    def __init__(self, exchange: Exchange, form: Form, heading: Heading, *, include_usage: bool) -> None:
        self._exchange = exchange
        self._form = form
        self._heading = heading
        self._include_usage = include_usage
        self._usage: UsageField = None if include_usage else UNSET
        self._choices: dict[int, _Choice] = {}
        self._begun = False
        self._over = False
        self._flushing = False

    def part(self, index: int, text: str) -> None:
        """More of one text."""
        self._choice(index).add(text)
        self._flush_soon()

    def finished(self, index: int, ended: Ended) -> None:
        """One text is at its end; what no part had of it is sent with that."""
        choice = self._choice(index)
        choice.add(ended.answer.text[choice.characters :])
        choice.ended = ended
        self._flush_soon()

    def complete(self) -> None:
        """All texts are at their ends."""
        self._flush()
        texts = [choice.ended for choice in self._choices.values() if choice.ended is not None]
        usage = event(self._form.last(self._heading, usage_of(texts))) if self._include_usage else b""
        self._close(usage + DONE)

    def failed(self, error: ApiError) -> None:
        """There will be no more."""
        if self._begun:
            self._flush()
            self._close(event(error_body(error)))
            return
        self._over = True
        self._exchange.fail(error)

    def _choice(self, index: int) -> _Choice:
        choice = self._choices.get(index)
        if choice is None:
            choice = self._choices[index] = _Choice()
        return choice

    def _flush_soon(self) -> None:
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        if self._over:
            return
        events = [self._news(index, choice) for index, choice in self._choices.items() if choice.has_news]
        if not events:
            return
        if not self._begun:
            self._begun = True
            self._exchange.begin(kind=KIND, headers=HEADERS)
        self._exchange.write(b"".join(events))

    def _news(self, index: int, choice: _Choice) -> bytes:
        text = "".join(choice.waiting)
        choice.waiting.clear()
        body = self._form.part(self._heading, index, text, self._usage, first=not choice.begun, ended=choice.ended)
        choice.begun = True
        choice.closed = choice.ended is not None
        return event(body)

    def _close(self, last: bytes) -> None:
        self._over = True
        self._exchange.write(last)
        self._exchange.end()
