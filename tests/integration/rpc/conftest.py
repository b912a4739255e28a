"""Real servers and channels, on both event loops and over both kinds of socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Protocol

import pytest
import uvloop

from copydesk.common.rpc import (
    PROTOCOL_VERSION,
    Address,
    Channel,
    Hello,
    InboundCall,
    Load,
    RpcServer,
    TcpAddress,
    UnixAddress,
)


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(params=["tcp", "unix"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Address:
    return TcpAddress("127.0.0.1", 0) if request.param == "tcp" else UnixAddress(str(tmp_path / "rpc.sock"))


class Serve(Protocol):
    """Starts a server that is closed at the end of the test."""

    def __call__(
        self, handler: Callable[[InboundCall], None], address: Address, **options: Any
    ) -> Coroutine[Any, Any, tuple[RpcServer, Address]]: ...


class Open(Protocol):
    """Opens a channel that is closed at the end of the test."""

    def __call__(self, address: Address, **options: Any) -> Coroutine[Any, Any, Channel]: ...


@pytest.fixture
async def closing() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
def serve(closing: AsyncExitStack) -> Serve:
    async def start(
        handler: Callable[[InboundCall], None], address: Address, **options: Any
    ) -> tuple[RpcServer, Address]:
        settings: dict[str, Any] = {
            "hello": lambda: Hello(PROTOCOL_VERSION, "server", model="gec-en", capacity=8),
            "load": Load,
        }
        server = RpcServer(handler, **settings | options)
        closing.push_async_callback(server.close)
        return server, await server.start(address)

    return start


@pytest.fixture
def connect(closing: AsyncExitStack) -> Open:
    async def open_channel(address: Address, **options: Any) -> Channel:
        channel = await Channel.open(address, **{"name": "test"} | options)
        closing.push_async_callback(channel.close)
        return channel

    return open_channel
