"""A connection that goes from one server to another, its client none the wiser."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from copydesk.common.rpc import PROTOCOL_VERSION, Channel, Hello, InboundCall, Load, RpcServer, TcpAddress
from copydesk.common.rpc.codec import encode_frame
from copydesk.common.rpc.frames import Priority, Request
from tests.fixtures.until import until


class Worker:
    """A server that is given its connections, and holds each call until it is told to answer."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.calls: list[InboundCall] = []
        self.lost = 0
        self.server = RpcServer(self.calls.append, hello=lambda: Hello(PROTOCOL_VERSION, name), load=Load)

    async def adopt(self, sock: socket.socket, peer: str | None = None) -> None:
        await self.server.adopt(sock, peer=peer, on_lost=self._on_lost)

    def answer(self) -> None:
        for call in self.calls:
            call.reply(msgspec.msgpack.encode(self.name))
        self.calls.clear()

    def _on_lost(self) -> None:
        self.lost += 1


@asynccontextmanager
async def workers() -> AsyncIterator[tuple[Worker, Worker]]:
    pair = Worker("first"), Worker("second")
    yield pair
    for worker in pair:
        await worker.server.close()


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


async def connected(listener: socket.socket, worker: Worker) -> Channel:
    opening = asyncio.create_task(Channel.open(TcpAddress("127.0.0.1", listener.getsockname()[1]), name="gateway"))
    sock, _ = await asyncio.to_thread(listener.accept)
    sock.setblocking(False)
    await worker.adopt(sock)
    return await opening


async def asked(channel: Channel, worker: Worker) -> asyncio.Task[str]:
    async def ask() -> str:
        response = await channel.call(b"\xc0", deadline_ms=10_000)
        return msgspec.msgpack.decode(response.payload, type=str)

    task = asyncio.create_task(ask())
    await until(lambda: bool(worker.calls))
    return task


async def test_a_connection_accepted_elsewhere_is_served(listener: socket.socket) -> None:
    async with workers() as (first, _):
        channel = await connected(listener, first)
        answer = await asked(channel, first)
        first.answer()
        assert await answer == "first"
        await channel.close()
        await until(lambda: first.lost == 1)
        assert first.server.connections == 0


async def test_an_idle_connection_moves_and_its_client_notices_nothing(listener: socket.socket) -> None:
    async with workers() as (first, second):
        channel = await connected(listener, first)
        released = await first.server.release(patience=5.0)
        assert released is not None
        assert released.peer == "gateway"
        await second.adopt(released.sock, released.peer)
        answer = await asked(channel, second)
        second.answer()
        assert await answer == "second"
        assert (first.lost, first.server.connections, second.server.connections) == (1, 0, 1)
        assert not channel.closed
        await channel.close()


async def test_a_busy_connection_moves_between_two_requests_and_none_is_lost(listener: socket.socket) -> None:
    async with workers() as (first, second):
        channel = await connected(listener, first)
        early = await asked(channel, first)
        releasing = asyncio.create_task(first.server.release(patience=5.0))
        await asyncio.sleep(0)
        late = asyncio.create_task(channel.call(b"\xc0", deadline_ms=10_000))
        await asyncio.sleep(0.01)
        assert len(first.calls) == 1
        first.answer()
        released = await releasing
        assert released is not None
        await second.adopt(released.sock, released.peer)
        await until(lambda: len(second.calls) == 1)
        second.answer()
        assert await early == "first"
        assert msgspec.msgpack.decode((await late).payload) == "second"
        await channel.close()


async def test_a_connection_stays_whose_requests_outlast_the_patience(listener: socket.socket) -> None:
    async with workers() as (first, _):
        channel = await connected(listener, first)
        answers = [await asked(channel, first)]
        assert await first.server.release(patience=0.02) is None
        answers.append(asyncio.create_task(_text(channel)))
        await until(lambda: len(first.calls) == 2)
        first.answer()
        assert await asyncio.gather(*answers) == ["first", "first"]
        assert first.lost == 0
        await channel.close()


async def test_the_least_busy_connection_goes_first(listener: socket.socket) -> None:
    async with workers() as (first, second):
        busy, idle = await connected(listener, first), await connected(listener, first)
        answer = await asked(busy, first)
        released = await first.server.release(patience=0.0)
        assert released is not None
        await second.adopt(released.sock, released.peer)
        moved = await asked(idle, second)
        for worker in (first, second):
            worker.answer()
        assert (await answer, await moved) == ("first", "second")
        for channel in (busy, idle):
            await channel.close()


async def test_a_connection_stays_while_a_request_has_come_in_part_only(listener: socket.socket) -> None:
    async with workers() as (first, _):
        reader, writer = await _raw_client(listener, first)
        request = encode_frame(Request(1, 10_000, Priority.INTERACTIVE, msgspec.Raw(b"\xc0")))
        writer.write(request[:7])
        await writer.drain()
        session = next(iter(first.server._sessions))
        await until(lambda: session.connection.parser.in_frame)
        assert await first.server.release(patience=1.0) is None
        writer.write(request[7:])
        await until(lambda: len(first.calls) == 1)
        first.answer()
        assert await reader.read(4)
        writer.close()


async def test_what_has_not_greeted_yet_is_not_moved(listener: socket.socket) -> None:
    async with workers() as (first, _):
        stranger = socket.create_connection(listener.getsockname())
        sock, _ = listener.accept()
        sock.setblocking(False)
        await first.adopt(sock)
        assert await first.server.release(patience=0.0) is None
        stranger.close()
        await until(lambda: first.lost == 1)


async def test_a_greeted_client_learns_on_arrival_that_its_new_server_drains(listener: socket.socket) -> None:
    async with workers() as (first, second):
        channel = await connected(listener, first)
        released = await first.server.release(patience=1.0)
        assert released is not None
        await second.server.drain(timeout=0.0)
        await second.adopt(released.sock, released.peer)
        await until(lambda: channel.draining)
        await channel.close()


async def _text(channel: Channel) -> str:
    return msgspec.msgpack.decode((await channel.call(b"\xc0", deadline_ms=10_000)).payload, type=str)


async def _raw_client(
    listener: socket.socket, worker: Worker
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    opening = asyncio.create_task(asyncio.open_connection(*listener.getsockname()))
    sock, _ = await asyncio.to_thread(listener.accept)
    sock.setblocking(False)
    await worker.adopt(sock)
    reader, writer = await opening
    writer.write(encode_frame(Hello(PROTOCOL_VERSION, "raw")))
    size = int.from_bytes(await reader.readexactly(4))
    await reader.readexactly(size)
    return reader, writer
