"""A connection without a network, on a clock that moves when told."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import uvicorn
from uvicorn.server import ServerState

from copydesk.gateway.http.connection import HotProtocol
from copydesk.gateway.http.exchange import Exchange, Handler
from copydesk.gateway.http.hot import HotPath
from copydesk.gateway.lifecycle import Lifecycle
from copydesk.gateway.metrics import Metrics

PATH = "/hot"


class Clock:
    """The running loop, but for time and timers."""

    def __init__(self) -> None:
        self.now = 0.0
        self._timers: list[tuple[float, asyncio.Handle]] = []
        self._loop = asyncio.get_running_loop()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[..., object], *arguments: Any) -> asyncio.Handle:
        handle = asyncio.Handle(callback, arguments, self._loop)
        self._timers.append((self.now + delay, handle))
        return handle

    def advance(self, seconds: float) -> None:
        self.now += seconds
        due = [handle for at, handle in self._timers if at <= self.now]
        self._timers = [(at, handle) for at, handle in self._timers if at > self.now]
        for handle in due:
            if not handle.cancelled():
                handle._run()

    @property
    def timers(self) -> int:
        return sum(not handle.cancelled() for _, handle in self._timers)


class Wire(asyncio.Transport):
    """What the gateway does to its end of the connection."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.unread = 0
        self.closed = self.aborted = self.paused = False

    @property
    def written(self) -> bytes:
        return b"".join(self.writes)

    @property
    def statuses(self) -> list[int]:
        return [int(found) for found in re.findall(rb"HTTP/1\.1 (\d{3}) ", self.written)]

    def write(self, data: Any) -> None:
        self.writes.append(bytes(data))

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def get_write_buffer_size(self) -> int:
        return self.unread


async def turn() -> None:
    """Let the loop do what is due, and what comes of that."""
    for _ in range(5):
        await asyncio.sleep(0)


def post(
    body: bytes = b"{}", *headers: str, path: str = PATH, version: str = "1.1", length: int | None = None
) -> bytes:
    size = len(body) if length is None else length
    lines = [f"POST {path} HTTP/{version}", "Host: x", "Content-Type: application/json", f"Content-Length: {size}"]
    return "\r\n".join([*lines, *headers, "", ""]).encode() + body


@dataclass
class Hot:
    """A connection with a handler behind it that keeps what it is given, or does as it is told."""

    behave: Handler = lambda exchange: None
    limit: int = 1000
    patience: float = 10.0
    taken: list[Exchange] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.clock = Clock()
        self.wire = Wire()
        self.metrics = Metrics()
        self.lifecycle = Lifecycle()
        self.path = HotPath(
            {PATH: self._handle},
            authorize=lambda headers: headers.get(b"authorization", b"").decode(),
            metrics=self.metrics,
            lifecycle=self.lifecycle,
            max_body_bytes=self.limit,
            body_timeout=self.patience,
        )
        self.path.loop = cast(asyncio.AbstractEventLoop, self.clock)
        self.path.bodies._loop = self.path.loop
        config = uvicorn.Config(self._app, ws="none", lifespan="off", log_config=None, interface="asgi3")
        self.state = ServerState()
        self.connection = HotProtocol(config, self.state, {}, self.path.loop, hot=self.path)
        self.connection.connection_made(self.wire)

    def send(self, *parts: bytes) -> None:
        for part in parts:
            self.connection.data_received(part)

    def counted(self, status: int) -> bool:
        return f'requests_total{{route="{PATH}",code="{status}"}} ' in self.metrics.render({})

    def _handle(self, exchange: Exchange) -> None:
        self.taken.append(exchange)
        self.behave(exchange)

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked.append(scope["path"])
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 202, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})
