"""The bus against a real nats-server that comes late, goes and returns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Protocol

import msgspec
import nats
import psutil
import pytest
import structlog

from copydesk.common import bus as bus_module
from copydesk.common.bus import Bus
from copydesk.common.messages import Endpoint, EndpointsSnapshot, EndpointState, endpoints_subject
from tests.fixtures.until import until

if TYPE_CHECKING:
    from tests.fixtures.nats import NatsServer

SUBJECT = endpoints_subject("gec-en")
RETURN_SECONDS = 15.0


class Connect(Protocol):
    """Makes a bus that is closed at the end of the test."""

    async def __call__(self, server: NatsServer) -> Bus: ...


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    async with AsyncExitStack() as stack:

        async def make(server: NatsServer) -> Bus:
            bus = await Bus.connect(server.url, name="test")
            stack.push_async_callback(bus.close)
            return bus

        yield make


def snapshot(generation: int, padding: str = "") -> EndpointsSnapshot:
    endpoint = Endpoint(id=f"pod-0{padding}", host="127.0.0.1", port=9000, state=EndpointState.READY)
    return EndpointsSnapshot(model="gec-en", epoch=1, generation=generation, sent_at=0.0, endpoints=(endpoint,))


async def test_a_message_arrives_as_it_was_sent(nats_server: NatsServer, connect: Connect) -> None:
    sender, receiver = await connect(nats_server), await connect(nats_server)
    assert await sender.wait_connected(5)
    assert await receiver.wait_connected(5)
    got: list[EndpointsSnapshot] = []
    await receiver.subscribe("copydesk.v1.endpoints.*", EndpointsSnapshot, got.append)
    sender.publish(SUBJECT, snapshot(1))
    await until(lambda: bool(got))
    assert got == [snapshot(1)]
    assert sender.connected_since is not None
    assert sender.connected_since <= asyncio.get_running_loop().time()


async def test_the_server_knows_of_a_subscription_when_subscribe_returns(
    nats_server: NatsServer, connect: Connect
) -> None:
    sender = await connect(nats_server)
    assert await sender.wait_connected(5)
    got: list[EndpointsSnapshot] = []
    for generation in range(100):
        receiver = await connect(nats_server)
        assert await receiver.wait_connected(5)
        await receiver.subscribe(SUBJECT, EndpointsSnapshot, got.append)
        sender.publish(SUBJECT, snapshot(generation))
        await until(lambda: len(got) == generation + 1)  # noqa: B023
        await receiver.close()
    assert [each.generation for each in got] == list(range(100))


async def test_a_server_that_is_not_there_yet_is_waited_for(nats_server: NatsServer, connect: Connect) -> None:
    nats_server.stop()
    bus = await connect(nats_server)
    got: list[EndpointsSnapshot] = []
    await bus.subscribe(SUBJECT, EndpointsSnapshot, got.append)
    bus.publish(SUBJECT, snapshot(1))
    assert not await bus.wait_connected(0.5)
    assert (bus.connected, bus.connected_since, bus.dropped) == (False, None, 1)
    await asyncio.to_thread(nats_server.start)
    assert await bus.wait_connected(RETURN_SECONDS)
    bus.publish(SUBJECT, snapshot(2))
    await until(lambda: bool(got))
    assert [each.generation for each in got] == [2]


async def test_nothing_published_while_the_server_is_away_arrives_later(
    nats_server: NatsServer, connect: Connect
) -> None:
    bus = await connect(nats_server)
    assert await bus.wait_connected(5)
    got: list[EndpointsSnapshot] = []
    await bus.subscribe(SUBJECT, EndpointsSnapshot, got.append)
    bus.publish(SUBJECT, snapshot(1))
    await until(lambda: len(got) == 1)
    await asyncio.to_thread(nats_server.stop)
    for generation in range(100, 150):
        bus.publish(SUBJECT, snapshot(generation))
        await asyncio.sleep(0.002)
    await until(lambda: not bus.connected)
    bus.publish(SUBJECT, snapshot(999))
    await asyncio.to_thread(nats_server.start)
    assert await bus.wait_connected(RETURN_SECONDS)
    bus.publish(SUBJECT, snapshot(2))
    await until(lambda: got[-1].generation == 2)
    assert [each.generation for each in got] == [1, 2]
    assert bus.dropped > 0


def connected_to(server: NatsServer) -> list[str]:
    """The states of this process's connections to `server`."""
    found = psutil.Process().net_connections("tcp")
    return [each.status for each in found if each.raddr and each.raddr.port == server.port]


async def fill_what_it_can_take(bus: Bus) -> None:
    """Publish more than socket buffers hold, so that nats-py hangs in its writes to a frozen server."""
    for generation in range(3000):
        bus.publish(SUBJECT, snapshot(generation, padding="x" * 10_000))
        if generation % 10 == 0:
            await asyncio.sleep(0.001)


async def test_a_frozen_server_is_left_and_found_again(
    nats_server: NatsServer, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bus_module, "PING_SECONDS", 0.1)
    bus = await connect(nats_server)
    assert await bus.wait_connected(5)
    nats_server.freeze()
    try:
        await fill_what_it_can_take(bus)
        await until(lambda: not bus.connected)
    finally:
        nats_server.thaw()
    assert await bus.wait_connected(RETURN_SECONDS)
    assert bus.dropped > 0


async def test_a_bus_that_closes_while_its_server_is_frozen_leaves_no_connection(nats_server: NatsServer) -> None:
    bus = await Bus.connect(nats_server.url, name="test")
    assert await bus.wait_connected(5)
    assert len(connected_to(nats_server)) == 1
    nats_server.freeze()
    try:
        await fill_what_it_can_take(bus)
        await bus.close()
        assert connected_to(nats_server) == []
    finally:
        nats_server.thaw()


async def test_a_body_that_does_not_decode_is_logged_and_dropped(
    nats_server: NatsServer, connect: Connect
) -> None:
    bus = await connect(nats_server)
    assert await bus.wait_connected(5)
    got: list[EndpointsSnapshot] = []
    await bus.subscribe(SUBJECT, EndpointsSnapshot, got.append)
    other = await nats.connect(nats_server.url)
    with structlog.testing.capture_logs() as logs:
        for body in (b"", b"\xff\xfe", b"{}", b'{"model": 1}', b"[" * 100_000):
            await other.publish(SUBJECT, body)
        await other.publish(SUBJECT, msgspec.json.encode(snapshot(5)))
        await until(lambda: bool(got))
    await other.close()
    assert [each.generation for each in got] == [5]
    assert [line["event"] for line in logs].count("bus_message_undecodable") == 5


async def test_a_flood_of_such_bodies_does_not_flood_the_log(
    nats_server: NatsServer, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus = await connect(nats_server)
    assert await bus.wait_connected(5)
    got: list[EndpointsSnapshot] = []
    await bus.subscribe(SUBJECT, EndpointsSnapshot, got.append)
    other = await nats.connect(nats_server.url)
    with structlog.testing.capture_logs() as logs:
        for _ in range(500):
            await other.publish(SUBJECT, b"{")
        await other.publish(SUBJECT, msgspec.json.encode(snapshot(5)))
        await until(lambda: bool(got))
        monkeypatch.setattr(bus_module, "COMPLAINT_SECONDS", 0.0)
        await other.publish(SUBJECT, b"{")
        await until(lambda: len(logs) > bus_module.COMPLAINTS)
    await other.close()
    told = [line for line in logs if line["event"] == "bus_messages_undecodable"]
    assert [line["unlogged"] for line in told] == [500 - bus_module.COMPLAINTS]


async def test_a_callback_that_raises_gets_the_next_message_all_the_same(
    nats_server: NatsServer, connect: Connect
) -> None:
    bus = await connect(nats_server)
    assert await bus.wait_connected(5)
    seen: list[int] = []

    def fail(message: EndpointsSnapshot) -> None:
        seen.append(message.generation)
        raise RuntimeError("a bug in the receiver")

    await bus.subscribe(SUBJECT, EndpointsSnapshot, fail)
    bus.publish(SUBJECT, snapshot(1))
    bus.publish(SUBJECT, snapshot(2))
    await until(lambda: seen == [1, 2])


async def test_an_unsubscribed_callback_is_not_called_again(nats_server: NatsServer, connect: Connect) -> None:
    bus = await connect(nats_server)
    assert await bus.wait_connected(5)
    first: list[EndpointsSnapshot] = []
    second: list[EndpointsSnapshot] = []
    subscription = await bus.subscribe(SUBJECT, EndpointsSnapshot, first.append)
    await bus.subscribe(SUBJECT, EndpointsSnapshot, second.append)
    await subscription.unsubscribe()
    bus.publish(SUBJECT, snapshot(1))
    await until(lambda: bool(second))
    assert first == []


async def test_what_was_published_before_close_is_sent(nats_server: NatsServer, connect: Connect) -> None:
    receiver = await connect(nats_server)
    assert await receiver.wait_connected(5)
    got: list[EndpointsSnapshot] = []
    await receiver.subscribe(SUBJECT, EndpointsSnapshot, got.append)
    sender = await connect(nats_server)
    assert await sender.wait_connected(5)
    sender.publish(SUBJECT, snapshot(1))
    await sender.close()
    await until(lambda: bool(got))
    sender.publish(SUBJECT, snapshot(2))
    assert (sender.connected, sender.dropped) == (False, 1)


async def test_a_message_too_large_for_the_server_costs_only_itself(
    nats_server: NatsServer, connect: Connect
) -> None:
    bus = await connect(nats_server)
    assert await bus.wait_connected(5)
    got: list[EndpointsSnapshot] = []
    await bus.subscribe(SUBJECT, EndpointsSnapshot, got.append)
    bus.publish(SUBJECT, snapshot(1, padding="x" * 2_000_000))
    bus.publish(SUBJECT, snapshot(2))
    await until(lambda: bool(got))
    assert [each.generation for each in got] == [2]
    assert bus.dropped == 1
