"""The handlers of the hot path, reached through ASGI."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from fastapi import FastAPI

from copydesk.gateway.faults import overloaded
from copydesk.gateway.http.bridge import bridge
from copydesk.gateway.http.edge import Edge
from copydesk.gateway.http.exchange import Exchange, Handler
from copydesk.gateway.http.origins import Origins
from copydesk.gateway.lifecycle import Lifecycle
from copydesk.gateway.metrics import Metrics
from copydesk.gateway.settings import GatewaySettings
from tests.unit.gateway.conftest import eventually


class Call:
    """One request to an application with one handler, and what ASGI saw of its answer."""

    def __init__(self, handler: Handler) -> None:
        self.metrics = Metrics()
        app = FastAPI()
        app.post("/hot")(bridge(handler, GatewaySettings()))
        self.sent: list[dict[str, Any]] = []
        self._gone = asyncio.Event()
        self._messages = [{"type": "http.request", "body": b"{}", "more_body": False}]
        headers = [(b"content-type", b"application/json"), (b"content-length", b"2")]
        scope = {
            "type": "http", "method": "POST", "path": "/hot", "raw_path": b"/hot", "root_path": "",
            "query_string": b"", "headers": headers, "http_version": "1.1", "scheme": "http",
        }  # fmt: skip
        self.serving = asyncio.ensure_future(
            Edge(app, self.metrics, Lifecycle(), Origins())(scope, self._receive, self._send)
        )

    def leave(self) -> None:
        self._gone.set()

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)

    @property
    def complete(self) -> bool:
        return bool(self.sent) and self.sent[-1].get("more_body") is False

    def counted(self, status: int) -> bool:
        return f'requests_total{{route="/hot",code="{status}"}} 1' in self.metrics.render({})

    async def _receive(self) -> Any:
        if self._messages:
            return self._messages.pop()
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self.sent.append(dict(message))


class Kept:
    """A handler that only remembers."""

    def __init__(self) -> None:
        self.exchange: Exchange | None = None

    def __call__(self, exchange: Exchange) -> None:
        self.exchange = exchange


async def begun(then: Callable[[Exchange], None] = lambda exchange: None) -> tuple[Call, Exchange]:
    kept = Kept()
    call = Call(kept)
    await eventually(lambda: kept.exchange)
    assert kept.exchange is not None
    then(kept.exchange)
    return call, kept.exchange


def streaming(exchange: Exchange) -> None:
    exchange.begin(kind=b"text/event-stream", headers=[(b"cache-control", b"no-store")])
    exchange.write(b"one")
    exchange.write(b"two")


async def test_an_answer_in_parts_goes_out_as_it_comes() -> None:
    call, exchange = await begun(streaming)
    await eventually(lambda: call.body == b"onetwo")
    headers = dict(call.sent[0]["headers"])
    assert (headers[b"content-type"], headers[b"cache-control"]) == (b"text/event-stream", b"no-store")
    assert b"content-length" not in headers
    assert not call.complete
    exchange.write(b"three")
    exchange.end()
    await call.serving
    assert (call.body, call.complete) == (b"onetwothree", True)
    assert call.counted(200)


async def test_a_client_that_leaves_in_the_middle_is_counted_and_told_of_once() -> None:
    call, exchange = await begun(streaming)
    left: list[str] = []
    exchange.on_gone = lambda: left.append("gone")
    await eventually(lambda: call.body)
    call.leave()
    await call.serving
    assert left == ["gone"]
    assert call.counted(499)
    exchange.write(b"late")
    exchange.end()
    assert b"late" not in call.body


async def test_a_client_that_leaves_before_an_answer_is_counted_and_told_of_once() -> None:
    call, exchange = await begun()
    left: list[str] = []
    exchange.on_gone = lambda: left.append("gone")
    call.leave()
    await call.serving
    assert left == ["gone"]
    assert call.counted(499)
    exchange.respond(b"late")
    assert b"late" not in call.body


async def test_a_server_that_gives_up_tells_the_handler() -> None:
    call, exchange = await begun()
    left: list[str] = []
    exchange.on_gone = lambda: left.append("gone")
    call.serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call.serving
    assert left == ["gone"]


async def test_a_request_has_one_answer() -> None:
    call, exchange = await begun()
    exchange.respond(b"1", kind=b"text/plain")
    with pytest.raises(RuntimeError, match="already"):
        exchange.fail(overloaded(1))
    await call.serving
    assert call.body == b"1"


async def test_an_error_is_answered_in_its_shape() -> None:
    def told(exchange: Exchange) -> None:
        exchange.fail(overloaded(1500))

    call, _ = await begun(told)
    await call.serving
    assert call.sent[0]["status"] == 429
    assert (b"retry-after", b"2") in call.sent[0]["headers"]
