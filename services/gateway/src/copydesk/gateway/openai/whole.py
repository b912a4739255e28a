"""An answer that is sent when all of it is there."""

from __future__ import annotations

import msgspec

from copydesk.gateway.faults import ApiError
from copydesk.gateway.http.exchange import Exchange
from copydesk.gateway.openai.forms import Ended, Form, Heading

_encode = msgspec.json.Encoder().encode


class WholeReply:
    """Collects the texts, and answers with all of them, or with the first error."""

    def __init__(self, exchange: Exchange, form: Form, heading: Heading) -> None:
        self._exchange = exchange
        self._form = form
        self._heading = heading
        self._texts: dict[int, Ended] = {}

    def part(self, index: int, text: str) -> None:
        """A part of a text, which the whole has too."""

    def finished(self, index: int, ended: Ended) -> None:
        """One text is there."""
        self._texts[index] = ended

    def complete(self) -> None:
        """All texts are there."""
        texts = [self._texts[index] for index in range(len(self._texts))]
        self._exchange.respond(_encode(self._form.whole(self._heading, texts)))

    def failed(self, error: ApiError) -> None:
        """There will be no answer."""
        self._exchange.fail(error)
