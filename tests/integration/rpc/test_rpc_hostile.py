"""What peers do wrong costs them their connection, and nobody else anything."""

from __future__ import annotations

import asyncio
import os
import signal
import struct
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import msgspec
import pytest
import structlog

from copydesk.common.messages import EndpointState
from copydesk.common.rpc import (
    PROTOCOL_VERSION,
    Channel,
    Hello,
    InboundCall,
    Load,
    Pong,
    Priority,
    Response,
    RpcConnectError,
    RpcHandshakeError,
    RpcPingError,
    Status,
    TcpAddress,
    connection,
    server,
)
from copydesk.common.rpc.codec import FrameParser, encode_frame
from copydesk.common.rpc.frames import AnyFrame, Cancel, Ping, Request
from tests.fixtures.until import until

if TYPE_CHECKING:
    from tests.integration.rpc.conftest import Open, Serve

ANY_PORT = TcpAddress("127.0.0.1", 0)
encode = msgspec.msgpack.encode
GREETING = encode_frame(Hello(PROTOCOL_VERSION, "raw"))
ONE = msgspec.Raw(encode(1))

DIES_IN_MID_REQUEST = """
import asyncio
from copydesk.common.rpc import PROTOCOL_VERSION, Hello, Load, RpcServer, TcpAddress

async def main():
    server = RpcServer(
        lambda call: print("got", flush=True),
        hello=lambda: Hello(PROTOCOL_VERSION, "server"),
        load=Load,
    )
    print((await server.start(TcpAddress("127.0.0.1", 0))).port, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def echo(call: InboundCall) -> None:
    call.reply(bytes(call.payload))


async def raw_exchange(where: TcpAddress, *sent: bytes) -> bytes:
    """Send bytes as no client would, and return all that comes back before the server closes."""
    reader, writer = await asyncio.open_connection(where.host, where.port)
    writer.writelines(sent)
    received = b""
    with suppress(OSError):
        async with asyncio.timeout(10):
            received = await reader.read()
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return received


@asynccontextmanager
async def raw_server(*sent: bytes, hang_up: bool = False) -> AsyncIterator[TcpAddress]:
    """Accept connections, send `sent` to each, and read whatever comes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.writelines(sent)
        with suppress(OSError):
            while not hang_up and await reader.read(1 << 16):
                pass
        writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield TcpAddress("127.0.0.1", listener.sockets[0].getsockname()[1])
    finally:
        listener.close()


@pytest.mark.parametrize(
    ("sent", "kind"),
    [
        pytest.param([GREETING, struct.pack(">I", (4 << 20) + 1)], "FrameTooLargeError", id="too large"),
        pytest.param([struct.pack(">I", 20_000)], "FrameTooLargeError", id="a greeting too large"),
        pytest.param([GREETING, struct.pack(">I", 3), b"\xc1\xc1\xc1"], "FrameDecodeError", id="undecodable"),
        pytest.param([b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"], "FrameTooLargeError", id="http"),
        pytest.param([encode_frame(Ping(1))], "UnexpectedFrameError", id="no greeting"),
        pytest.param([GREETING, GREETING], "UnexpectedFrameError", id="two greetings"),
        pytest.param(
            [GREETING, encode_frame(Pong(1, Load(), EndpointState.READY))],
            "UnexpectedFrameError",
            id="a frame that only servers send",
        ),
    ],
)
async def test_bytes_that_break_the_protocol_close_that_connection_only(
    serve: Serve, connect: Open, sent: list[bytes], kind: str
) -> None:
    rpc_server, where = await serve(echo, ANY_PORT)
    assert isinstance(where, TcpAddress)
    good = await connect(where)
    with structlog.testing.capture_logs() as logs:
        await raw_exchange(where, *sent)
        await until(lambda: rpc_server.connections == 1)
    assert [line["kind"] for line in logs if line["event"] == "rpc_connection_lost"] == [kind]
    assert (await good.call(encode(1), deadline_ms=5000)).status is Status.OK


async def test_an_id_used_twice_at_once_closes_the_connection_and_cancels_the_call(serve: Serve) -> None:
    calls: list[InboundCall] = []
    rpc_server, where = await serve(calls.append, ANY_PORT)
    assert isinstance(where, TcpAddress)
    request = encode_frame(Request(1, 5000, Priority.INTERACTIVE, ONE))
    await raw_exchange(where, GREETING, request, request)
    await until(lambda: rpc_server.connections == 0)
    assert [call.cancelled for call in calls] == [True]
    assert rpc_server.in_flight == 0


async def test_work_past_its_deadline_never_reaches_the_handler(serve: Serve) -> None:
    calls: list[InboundCall] = []
    _, where = await serve(calls.append, ANY_PORT)
    assert isinstance(where, TcpAddress)
    reader, writer = await asyncio.open_connection(where.host, where.port)
    expired = encode_frame(Request(1, 0, Priority.INTERACTIVE, ONE))
    writer.writelines([GREETING, expired, encode_frame(Ping(2))])
    parser = FrameParser()
    frames: list[AnyFrame] = []
    while len(frames) < 3:
        frames += parser.feed(await reader.read(1 << 16))
    writer.close()
    await writer.wait_closed()
    _, answer, pong = frames
    assert isinstance(answer, Response)
    assert answer.status is Status.DEADLINE_EXCEEDED
    assert isinstance(pong, Pong)
    assert calls == []


async def test_a_cancel_for_nothing_is_ignored(serve: Serve, connect: Open) -> None:
    rpc_server, where = await serve(echo, ANY_PORT)
    channel = await connect(where)
    channel._connection.send(Cancel(12345))
    assert (await channel.call(encode(1), deadline_ms=5000)).status is Status.OK
    assert rpc_server.connections == 1


async def test_a_wrong_token_is_refused_and_never_logged(serve: Serve, connect: Open) -> None:
    rpc_server, where = await serve(echo, ANY_PORT, token="right")
    with structlog.testing.capture_logs() as logs:
        for token in ("", "wrong-secret", "right "):
            with pytest.raises(RpcHandshakeError) as caught:
                await connect(where, token=token)
            assert "token" in caught.value.reason
        await until(lambda: rpc_server.connections == 0)
    assert "wrong-secret" not in str(logs)
    assert (await (await connect(where, token="right")).call(encode(1), deadline_ms=5000)).status is Status.OK


async def test_a_client_of_another_version_gets_nothing(serve: Serve) -> None:
    _, where = await serve(echo, ANY_PORT)
    assert isinstance(where, TcpAddress)
    assert await raw_exchange(where, encode_frame(Hello(PROTOCOL_VERSION + 1, "newer"))) == b""


async def test_a_server_of_another_version_is_named_in_the_error(connect: Open) -> None:
    async with raw_server(encode_frame(Hello(PROTOCOL_VERSION + 1, "newer"))) as where:
        with pytest.raises(RpcHandshakeError) as caught:
            await connect(where)
    assert f"version {PROTOCOL_VERSION + 1}" in caught.value.reason


async def test_a_server_that_speaks_something_else_is_a_handshake_error(connect: Open) -> None:
    async with raw_server(b"SSH-2.0-OpenSSH_9.2\r\n") as where:
        with pytest.raises(RpcHandshakeError):
            await connect(where)


async def test_a_server_that_hangs_up_is_a_handshake_error(connect: Open) -> None:
    async with raw_server(hang_up=True) as where:
        with pytest.raises(RpcHandshakeError):
            await connect(where)


async def test_a_server_that_never_greets_times_out(connect: Open) -> None:
    async with raw_server() as where:
        with pytest.raises(RpcHandshakeError) as caught:
            await connect(where, timeout=0.05)
    assert "0.05 s" in caught.value.reason


async def test_a_client_that_never_greets_is_dropped(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HANDSHAKE_SECONDS", 0.05)
    rpc_server, where = await serve(echo, ANY_PORT)
    assert isinstance(where, TcpAddress)
    assert await raw_exchange(where, GREETING[:5]) == b""
    await until(lambda: rpc_server.connections == 0)


async def test_a_cancelled_open_leaves_no_connection(serve: Serve, connect: Open) -> None:
    async with raw_server() as where:
        opening = asyncio.create_task(connect(where, timeout=30))
        await asyncio.sleep(0.01)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening


async def test_garbage_from_the_server_ends_what_is_in_flight(connect: Open) -> None:
    hello = encode_frame(Hello(PROTOCOL_VERSION, "server"))
    async with raw_server(hello, struct.pack(">I", 2), b"\xc1\xc1") as where:
        closed: list[Channel] = []
        channel = await Channel.open(where, name="test", on_close=closed.append)
        response = await channel.call(encode(1), deadline_ms=5000)
        assert response.status is Status.UNAVAILABLE
        assert channel.closed
        assert closed == [channel]


async def test_a_connection_lost_right_after_the_greeting_never_becomes_a_channel_in_silence(
    connect: Open,
) -> None:
    async with raw_server(encode_frame(Hello(PROTOCOL_VERSION, "server")), hang_up=True) as where:
        with suppress(RpcConnectError):
            channel = await connect(where)
            await until(lambda: channel.closed)


async def test_a_killed_server_ends_every_request_in_flight_once(connect: Open) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", DIES_IN_MID_REQUEST, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        port = int(await process.stdout.readline())
        channel = await connect(TcpAddress("127.0.0.1", port))
        answers: list[Response] = []
        ids = {channel.send(encode(n), deadline_ms=30_000, on_reply=answers.append) for n in range(1000)}
        await process.stdout.readline()
        ping = asyncio.create_task(channel.ping(30))
        await asyncio.sleep(0)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        await process.communicate()
    await until(lambda: channel.closed)
    assert {response.id for response in answers} == ids
    assert len(answers) == 1000
    assert {response.status for response in answers} == {Status.UNAVAILABLE}
    assert {response.fault.code for response in answers if response.fault} == {"connection_lost"}
    with suppress(RpcPingError):
        await ping


async def test_a_frozen_server_is_told_by_deadline_and_ping(connect: Open) -> None:
    async with raw_server(encode_frame(Hello(PROTOCOL_VERSION, "server"))) as where:
        channel = await connect(where)
        assert (await channel.call(encode(1), deadline_ms=20)).status is Status.DEADLINE_EXCEEDED
        with pytest.raises(RpcPingError):
            await channel.ping(0.02)


async def test_a_client_that_does_not_read_is_dropped_before_it_fills_the_memory(
    serve: Serve, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "MAX_WRITE_BUFFER_BYTES", 1 << 20)
    rpc_server, where = await serve(lambda call: call.reply(encode(b"x" * 500_000)), ANY_PORT)
    assert isinstance(where, TcpAddress)
    good = await connect(where)
    reader, writer = await asyncio.open_connection(where.host, where.port, limit=1024)
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    writer.write(GREETING)
    with structlog.testing.capture_logs() as logs, suppress(OSError):
        for number in range(200):
            writer.write(encode_frame(Request(number, 60_000, Priority.INTERACTIVE, ONE)))
            await writer.drain()
            await asyncio.sleep(0)
        await until(lambda: rpc_server.connections == 1)
    writer.transport.abort()
    await until(lambda: rpc_server.connections == 1)
    assert "WriteBufferFullError" in [line.get("kind") for line in logs]
    assert (await good.call(encode(1), deadline_ms=5000)).status is Status.OK
    assert not reader.at_eof()


async def test_an_answer_too_large_for_a_frame_fails_its_request_only(serve: Serve, connect: Open) -> None:
    _, where = await serve(lambda call: call.reply(encode(b"x" * (5 << 20))), ANY_PORT)
    channel = await connect(where)
    response = await channel.call(encode(1), deadline_ms=20_000)
    assert response.status is Status.INTERNAL
    assert not channel.closed
