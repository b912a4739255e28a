"""Requests and answers over real sockets."""

from __future__ import annotations

import asyncio
import random
import socket
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from copydesk.common.messages import EndpointState
from copydesk.common.rpc import (
    PROTOCOL_VERSION,
    Address,
    Fault,
    Hello,
    InboundCall,
    Load,
    Priority,
    Response,
    RpcConnectError,
    RpcListenError,
    Status,
    TcpAddress,
    UnixAddress,
)
from tests.fixtures.until import until

if TYPE_CHECKING:
    from tests.integration.rpc.conftest import Open, Serve

encode = msgspec.msgpack.encode
decode = msgspec.msgpack.decode


def echo(call: InboundCall) -> None:
    call.reply(bytes(call.payload))


async def test_the_greeting_tells_who_the_server_is(serve: Serve, connect: Open, address: Address) -> None:
    _, where = await serve(echo, address)
    channel = await connect(where)
    assert channel.peer == Hello(PROTOCOL_VERSION, "server", model="gec-en", capacity=8)
    assert channel.load == Load(capacity=8)


async def test_thousands_of_interleaved_requests_get_their_own_answers(
    serve: Serve, connect: Open, address: Address
) -> None:
    waiting: list[InboundCall] = []
    chance = random.Random(7)

    def shuffle(call: InboundCall) -> None:
        waiting.append(call)
        if len(waiting) >= 50:
            chance.shuffle(waiting)
            while waiting:
                each = waiting.pop()
                each.reply(bytes(each.payload))

    server, where = await serve(shuffle, address)
    channels = [await connect(where) for _ in range(4)]
    answers: dict[int, Response] = {}
    done = asyncio.get_running_loop().create_future()
    total = 8000

    def answered(number: int, response: Response) -> None:
        answers[number] = response
        if len(answers) == total:
            done.set_result(None)

    for number in range(total):
        channels[number % 4].send(
            encode({"number": number, "text": "x" * (number % 500)}),
            deadline_ms=30_000,
            on_reply=lambda response, number=number: answered(number, response),  # type: ignore[misc]
        )
        if number % 100 == 99:
            await asyncio.sleep(0)
    async with asyncio.timeout(30):
        await done
    assert all(decode(response.payload)["number"] == number for number, response in answers.items())
    assert server.in_flight == 0
    assert all(channel.in_flight == 0 for channel in channels)


@pytest.mark.parametrize("size", [0, 1, 65_535, 1 << 20, (4 << 20) - 300])
async def test_payloads_of_any_size_pass(serve: Serve, connect: Open, address: Address, size: int) -> None:
    _, where = await serve(echo, address)
    channel = await connect(where)
    payload = encode(b"x" * size)
    response = await channel.call(payload, deadline_ms=20_000)
    assert response.status is Status.OK
    assert bytes(response.payload) == payload


async def test_the_handler_sees_priority_and_the_time_that_is_left(serve: Serve, connect: Open) -> None:
    seen: list[tuple[Priority, int]] = []

    def look(call: InboundCall) -> None:
        seen.append((call.priority, call.remaining_ms()))
        call.reply(encode(None))

    _, where = await serve(look, TcpAddress("127.0.0.1", 0))
    channel = await connect(where)
    await channel.call(encode(1), deadline_ms=60_000, priority=Priority.BATCH)
    ((priority, remaining),) = seen
    assert priority is Priority.BATCH
    assert 30_000 < remaining <= 60_000


async def test_an_answer_comes_with_the_load_of_that_moment(serve: Serve, connect: Open) -> None:
    _, where = await serve(echo, TcpAddress("127.0.0.1", 0), load=lambda: Load(5, 3, 8, 12.5))
    channel = await connect(where)
    assert (await channel.call(encode(1), deadline_ms=5000)).load == Load(5, 3, 8, 12.5)
    assert channel.load == Load(5, 3, 8, 12.5)


async def test_chunks_arrive_in_order_before_the_answer(serve: Serve, connect: Open) -> None:
    def stream(call: InboundCall) -> None:
        for part in range(5):
            call.chunk(encode(part))
        call.reply(encode("end"))
        call.chunk(encode("too late"))

    _, where = await serve(stream, TcpAddress("127.0.0.1", 0))
    channel = await connect(where)
    got: list[object] = []
    done = asyncio.Event()

    def end(response: Response) -> None:
        got.append(decode(response.payload))
        done.set()

    channel.send(encode(1), deadline_ms=5000, on_reply=end, on_chunk=lambda chunk: got.append(decode(chunk)))
    await done.wait()
    await channel.ping()
    assert got == [0, 1, 2, 3, 4, "end"]


async def test_a_failure_carries_status_code_and_advice(serve: Serve, connect: Open) -> None:
    fault = Fault("queue_full", "the queue is full", retry_after_ms=40)
    _, where = await serve(lambda call: call.fail(Status.OVERLOADED, fault), TcpAddress("127.0.0.1", 0))
    response = await (await connect(where)).call(encode(1), deadline_ms=5000)
    assert (response.status, response.fault) == (Status.OVERLOADED, fault)


async def test_only_the_first_answer_counts(serve: Serve, connect: Open) -> None:
    def thrice(call: InboundCall) -> None:
        call.reply(encode("first"))
        call.reply(encode("second"))
        call.fail(Status.INTERNAL, Fault("x", "x"))

    server, where = await serve(thrice, TcpAddress("127.0.0.1", 0))
    channel = await connect(where)
    assert decode((await channel.call(encode(1), deadline_ms=5000)).payload) == "first"
    assert decode((await channel.call(encode(1), deadline_ms=5000)).payload) == "first"
    assert server.in_flight == 0


async def test_a_handler_that_raises_fails_its_request_and_no_other(serve: Serve, connect: Open) -> None:
    def sometimes(call: InboundCall) -> None:
        if decode(call.payload) == "bad":
            raise RuntimeError("a bug in the handler")
        call.reply(bytes(call.payload))

    server, where = await serve(sometimes, TcpAddress("127.0.0.1", 0))
    channel = await connect(where)
    bad, good = await asyncio.gather(
        channel.call(encode("bad"), deadline_ms=5000), channel.call(encode("good"), deadline_ms=5000)
    )
    assert bad.status is Status.INTERNAL
    assert bad.fault is not None
    assert bad.fault.code == "internal"
    assert good.status is Status.OK
    assert server.in_flight == 0


async def test_a_cancelled_request_is_told_to_the_handler_and_never_answered(
    serve: Serve, connect: Open, address: Address
) -> None:
    calls: list[InboundCall] = []
    told: list[int] = []

    def hold(call: InboundCall) -> None:
        calls.append(call)
        call.on_cancel = lambda: told.append(call.id)

    server, where = await serve(hold, address)
    channel = await connect(where)
    answers: list[Response] = []
    request_id = channel.send(encode(1), deadline_ms=5000, on_reply=answers.append)
    await until(lambda: bool(calls))
    channel.cancel(request_id)
    channel.cancel(request_id)
    await until(lambda: bool(told))
    calls[0].reply(encode("too late"))
    await channel.ping()
    assert told == [request_id]
    assert calls[0].cancelled
    assert answers == []
    assert (server.in_flight, channel.in_flight) == (0, 0)


async def test_a_cancelled_task_cancels_its_request(serve: Serve, connect: Open) -> None:
    calls: list[InboundCall] = []
    _, where = await serve(calls.append, TcpAddress("127.0.0.1", 0))
    channel = await connect(where)
    task = asyncio.create_task(channel.call(encode(1), deadline_ms=5000))
    await until(lambda: bool(calls))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: calls[0].cancelled)
    assert channel.in_flight == 0


async def test_a_deadline_ends_the_request_here_and_there(serve: Serve, connect: Open, address: Address) -> None:
    calls: list[InboundCall] = []
    server, where = await serve(calls.append, address)
    channel = await connect(where)
    response = await channel.call(encode(1), deadline_ms=30)
    assert response.status is Status.DEADLINE_EXCEEDED
    await until(lambda: calls[0].cancelled)
    assert server.in_flight == 0


async def test_a_client_that_goes_cancels_what_it_asked_for(serve: Serve, connect: Open, address: Address) -> None:
    calls: list[InboundCall] = []
    told: list[str] = []

    def hold(call: InboundCall) -> None:
        calls.append(call)
        call.on_cancel = lambda: told.append("cancelled")

    server, where = await serve(hold, address)
    channel = await connect(where)
    answers: list[Response] = []
    channel.send(encode(1), deadline_ms=5000, on_reply=answers.append)
    await until(lambda: bool(calls))
    await channel.close()
    await until(lambda: server.connections == 0)
    assert told == ["cancelled"]
    assert [response.status for response in answers] == [Status.UNAVAILABLE]
    assert server.in_flight == 0


async def test_on_cancel_is_not_called_after_the_answer(serve: Serve, connect: Open) -> None:
    told: list[str] = []

    def answer(call: InboundCall) -> None:
        call.on_cancel = lambda: told.append("cancelled")
        call.reply(bytes(call.payload))

    server, where = await serve(answer, TcpAddress("127.0.0.1", 0))
    channel = await connect(where)
    await channel.call(encode(1), deadline_ms=5000)
    await channel.close()
    await until(lambda: server.connections == 0)
    assert told == []


async def test_a_ping_brings_load_and_state(serve: Serve, connect: Open, address: Address) -> None:
    _, where = await serve(
        echo,
        address,
        hello=lambda: Hello(PROTOCOL_VERSION, "server", state=EndpointState.WARMING),
        load=lambda: Load(1, 2, 3, 4.0),
    )
    pong = await (await connect(where)).ping()
    assert (pong.state, pong.load) == (EndpointState.WARMING, Load(1, 2, 3, 4.0))


async def test_draining_refuses_what_is_new_and_waits_for_what_is_in_flight(
    serve: Serve, connect: Open, address: Address
) -> None:
    calls: list[InboundCall] = []
    drained: list[object] = []
    server, where = await serve(calls.append, address)
    channel = await connect(where, on_drain=drained.append)
    held = asyncio.create_task(channel.call(encode("held"), deadline_ms=10_000))
    await until(lambda: bool(calls))
    draining = asyncio.create_task(server.drain(10))
    await until(lambda: channel.draining)
    assert drained == [channel]
    refused = await channel.call(encode("new"), deadline_ms=5000)
    assert refused.status is Status.UNAVAILABLE
    assert refused.fault is not None
    assert refused.fault.code == "draining"
    with pytest.raises(RpcConnectError):
        await connect(where)
    assert not draining.done()
    calls[0].reply(encode("answered"))
    assert decode((await held).payload) == "answered"
    assert await draining


async def test_draining_gives_up_after_its_time(serve: Serve, connect: Open) -> None:
    calls: list[InboundCall] = []
    server, where = await serve(calls.append, TcpAddress("127.0.0.1", 0))
    channel = await connect(where)
    held = asyncio.create_task(channel.call(encode(1), deadline_ms=10_000))
    await until(lambda: bool(calls))
    assert not await server.drain(0.01)
    await server.close()
    assert (await held).status is Status.UNAVAILABLE


async def test_every_request_accepted_before_a_drain_is_answered_under_load(
    serve: Serve, connect: Open, address: Address
) -> None:
    loop = asyncio.get_running_loop()
    accepted = 0

    def soon(call: InboundCall) -> None:
        nonlocal accepted
        accepted += 1
        loop.call_later(0.005, call.reply, bytes(call.payload))

    server, where = await serve(soon, address)
    channel = await connect(where)
    statuses: list[tuple[Status, str]] = []

    def ended(response: Response) -> None:
        statuses.append((response.status, response.fault.code if response.fault else ""))
        if response.status is Status.OK or not channel.draining:
            channel.send(encode("x" * 2000), deadline_ms=5000, on_reply=ended)

    for _ in range(200):
        channel.send(encode("x" * 2000), deadline_ms=5000, on_reply=ended)
    await until(lambda: len(statuses) > 1000)
    assert await server.drain(5)
    await server.close()
    await until(lambda: channel.closed)
    assert statuses.count((Status.OK, "")) == accepted
    refused = {entry for entry in statuses if entry[0] is not Status.OK}
    assert refused <= {(Status.UNAVAILABLE, "draining"), (Status.UNAVAILABLE, "connection_lost")}
    assert channel.in_flight == 0


async def test_answers_given_right_before_close_arrive_even_if_more_was_asked(
    serve: Serve, connect: Open, address: Address
) -> None:
    calls: list[InboundCall] = []
    server, where = await serve(calls.append, address)
    channel = await connect(where)
    held = asyncio.create_task(channel.call(encode("held"), deadline_ms=10_000))
    await until(lambda: bool(calls))
    late: list[Response] = []
    for _ in range(50):
        channel.send(encode("x" * 20_000), deadline_ms=10_000, on_reply=late.append)
    calls[0].reply(encode(b"x" * 3_000_000))
    await server.close()
    answer = await held
    assert answer.status is Status.OK
    assert len(answer.payload) > 3_000_000
    await until(lambda: len(late) == 50)


async def test_a_closed_server_closes_its_channels(serve: Serve, connect: Open, address: Address) -> None:
    server, where = await serve(echo, address)
    closed: list[object] = []
    channel = await connect(where, on_close=closed.append)
    await server.close()
    await until(lambda: channel.closed)
    assert closed == [channel]
    assert server.connections == 0


async def test_a_server_can_start_on_a_socket_bound_elsewhere(serve: Serve, connect: Open) -> None:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
        _, where = await serve(echo, sock.dup())  # type: ignore[arg-type]
        assert where == TcpAddress("127.0.0.1", port)
        assert decode((await (await connect(where)).call(encode(1), deadline_ms=5000)).payload) == 1


async def test_a_unix_socket_is_private_and_gone_after_close(serve: Serve, connect: Open, tmp_path: Path) -> None:
    path = tmp_path / "engine.sock"
    server, where = await serve(echo, UnixAddress(str(path)))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    await connect(where)
    await server.close()
    assert not path.exists()


async def test_a_unix_socket_left_by_a_dead_server_is_replaced(
    serve: Serve, connect: Open, tmp_path: Path
) -> None:
    path = tmp_path / "engine.sock"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    _, where = await serve(echo, UnixAddress(str(path)))
    assert (await (await connect(where)).call(encode(1), deadline_ms=5000)).status is Status.OK


async def test_an_address_in_use_is_a_typed_error(serve: Serve) -> None:
    _, where = await serve(echo, TcpAddress("127.0.0.1", 0))
    with pytest.raises(RpcListenError) as caught:
        await serve(echo, where)
    assert caught.value.address == where
    assert caught.value.reason


async def test_nobody_there_is_a_typed_error(connect: Open, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
    for address in (TcpAddress("127.0.0.1", port), UnixAddress(str(tmp_path / "none.sock"))):
        with pytest.raises(RpcConnectError) as caught:
            await connect(address)
        assert caught.value.address == address
        assert caught.value.reason


@pytest.mark.parametrize(
    "address",
    [
        TcpAddress("a" * 70_000, 80),
        TcpAddress("\u00e9" * 100, 80),
        TcpAddress("no such host", 80),
        TcpAddress("127.0.0.1\r\n", 80),
        TcpAddress("\0", 80),
        TcpAddress("127.0.0.1", 99_999),
        TcpAddress("127.0.0.1", -1),
        TcpAddress("127.0.0.1", 2**40),
        UnixAddress("a\0b"),
        UnixAddress("/" + "a" * 200),
    ],
)
async def test_what_is_no_address_cannot_be_reached(address: Address, connect: Open) -> None:
    with pytest.raises(RpcConnectError):
        await connect(address)
