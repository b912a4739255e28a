"""What clients that never finish their headers get, on a clock that only moves when told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
import uvicorn
from uvicorn.server import ServerState

from copydesk.gateway.http.protocol import HEAD_SECONDS, BoundedProtocol
from copydesk.gateway.server import KEEP_ALIVE_SECONDS


class Clock:
    """Holds timers back until its time has come; all else is the running loop's."""

    def __init__(self) -> None:
        self.now = 0.0
        self._timers: list[tuple[float, asyncio.Handle, Callable[..., object]]] = []
        self._loop = asyncio.get_running_loop()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def call_later(self, delay: float, callback: Callable[..., object]) -> asyncio.Handle:
        handle = asyncio.Handle(callback, [], self._loop)
        self._timers.append((self.now + delay, handle, callback))
        return handle

    def advance(self, seconds: float) -> None:
        self.now += seconds
        due, self._timers = (
            [each for each in self._timers if each[0] <= self.now],
            [each for each in self._timers if each[0] > self.now],
        )
        for _, handle, callback in due:
            if not handle.cancelled():
                callback()


class Wire(asyncio.Transport):
    """The other end of the connection."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.unread = 0
        self.closed = self.aborted = False

    def write(self, data: Any) -> None:
        self.written += data

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = self.closed = True

    def get_write_buffer_size(self) -> int:
        return self.unread

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


class Served:
    """A connection to an application that answers when it is let."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.wire = Wire()
        self.answer = asyncio.Event()
        config = uvicorn.Config(self._app, ws="none", lifespan="off", log_config=None, interface="asgi3")
        config.timeout_keep_alive = KEEP_ALIVE_SECONDS
        self.protocol = BoundedProtocol(config, ServerState(), {}, cast(asyncio.AbstractEventLoop, self.clock))
        self.protocol.connection_made(self.wire)

    async def _app(self, _scope: Any, _receive: Any, send: Any) -> None:
        await self.answer.wait()
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})


@pytest.fixture
async def served() -> Served:
    return Served()


async def test_half_a_head_is_refused_after_a_while(served: Served) -> None:
    served.protocol.data_received(b"GET / HTTP/1.1\r\nX: ")
    served.clock.advance(HEAD_SECONDS - 1)
    served.protocol.data_received(b"a")
    assert not served.wire.closed
    served.clock.advance(1)
    assert served.wire.written.startswith(b"HTTP/1.1 408 ")
    assert served.wire.closed


async def test_a_connection_on_which_nothing_comes_is_closed_as_an_idle_one(served: Served) -> None:
    served.clock.advance(KEEP_ALIVE_SECONDS - 1)
    assert not served.wire.closed
    served.clock.advance(1)
    assert served.wire.closed


async def test_a_client_that_reads_nothing_of_its_answers_is_cut_off(served: Served) -> None:
    served.wire.unread = 1_000_000
    served.clock.advance(KEEP_ALIVE_SECONDS)
    assert not served.wire.closed
    served.clock.advance(KEEP_ALIVE_SECONDS)
    assert served.wire.aborted


async def test_a_client_that_reads_slowly_is_given_time(served: Served) -> None:
    for left in (3, 2, 1):
        served.wire.unread = left
        served.clock.advance(KEEP_ALIVE_SECONDS)
        assert not served.wire.closed
    served.wire.unread = 0
    served.clock.advance(KEEP_ALIVE_SECONDS)
    assert served.wire.closed
    assert not served.wire.aborted


async def test_one_that_does_not_read_is_cut_off_though_its_connection_is_being_closed(served: Served) -> None:
    served.wire.unread = 1_000_000
    served.wire.close()
    served.clock.advance(KEEP_ALIVE_SECONDS)
    served.clock.advance(KEEP_ALIVE_SECONDS)
    assert served.wire.aborted


async def test_one_that_does_not_read_is_cut_off_though_its_answer_goes_on(served: Served) -> None:
    served.protocol.data_received(b"GET / HTTP/1.1\r\n\r\n")
    served.wire.unread = 1_000_000
    for _ in range(2):
        assert not served.wire.closed
        served.clock.advance(KEEP_ALIVE_SECONDS)
    assert served.wire.aborted
    served.answer.set()


async def test_the_head_behind_a_slow_answer_is_given_time(served: Served) -> None:
    served.protocol.data_received(b"GET / HTTP/1.1\r\n\r\nGET / HT")
    served.clock.advance(10 * HEAD_SECONDS)
    assert not served.wire.closed
    served.answer.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert served.wire.written.startswith(b"HTTP/1.1 204 ")
    served.clock.advance(HEAD_SECONDS)
    assert b"HTTP/1.1 408 " in served.wire.written


async def test_a_complete_head_stops_the_clock(served: Served) -> None:
    served.protocol.data_received(b"GET / HT")
    served.protocol.data_received(b"TP/1.1\r\n\r\n")
    served.clock.advance(10 * HEAD_SECONDS)
    assert not served.wire.closed
    served.answer.set()


async def test_a_connection_that_is_gone_leaves_no_timer(served: Served) -> None:
    served.protocol.data_received(b"GET / HT")
    served.protocol.connection_lost(None)
    written = served.wire.written
    served.clock.advance(10 * KEEP_ALIVE_SECONDS)
    assert served.wire.written == written
