"""RPC frames as an enemy would write them, for the parser in Python, the compiled lane, and a server.

That the lane hands on what is not its own as the parser in Python would: tests/unit/gateway/test_lane_frames.py.
What each kind of bad peer costs itself: tests/integration/rpc/test_rpc_hostile.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Iterable
from types import ModuleType

import msgspec
import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from copydesk.common.messages import EndpointState
from copydesk.common.rpc import PROTOCOL_VERSION, Hello, InboundCall, Load, RpcServer, TcpAddress
from copydesk.common.rpc.codec import FrameParser, encode_frame
from copydesk.common.rpc.errors import FrameError
from copydesk.common.rpc.frames import (
    AnyFrame,
    Cancel,
    Chunk,
    Drain,
    Fault,
    Ping,
    Pong,
    Priority,
    Request,
    Response,
    Status,
)
from copydesk.gateway.lane.parser import LaneParser
from tests.fixtures.until import until
from tests.fuzz.corpus import cases, effort
from tests.fuzz.hostile_bytes import damaged, pieces
from tests.unit.gateway.lane_rig import ANSWER, Rig, answer, request

LIMIT = 4096
NIL = msgspec.Raw(b"\xc0")
GREETING = encode_frame(Hello(PROTOCOL_VERSION, "raw"))
KEPT = [pytest.param(data, id=name) for name, data in cases("rpc_frames")]

whole = st.integers(-(1 << 63), (1 << 64) - 1)
loads = st.builds(Load, whole, whole, whole, st.floats())
frames: st.SearchStrategy[AnyFrame] = st.one_of(
    st.builds(Hello, whole, st.text(max_size=9), st.text(max_size=9)),
    st.builds(Request, whole, whole, st.sampled_from(Priority), st.just(NIL), st.text(max_size=5)),
    st.builds(
        Response,
        st.integers(0, 4) | whole,
        st.sampled_from(Status),
        loads,
        st.just(NIL) | st.just(msgspec.Raw(ANSWER)),
        st.none() | st.builds(Fault, st.text(max_size=5), st.text(max_size=5), whole),
    ),
    st.builds(Chunk, whole, st.just(NIL)),
    st.builds(Cancel, whole),
    st.just(Drain()),
    st.builds(Ping, whole),
    st.builds(Pong, whole, loads, st.sampled_from(EndpointState)),
)
framed = st.binary(max_size=40).map(lambda body: struct.pack(">I", len(body)) + body)
streams = damaged(st.lists(frames.map(encode_frame) | framed, max_size=4).map(b"".join))
cuts = st.lists(st.integers(0, 1 << 16), max_size=4)


def outcome(parsed: Iterable[AnyFrame]) -> tuple[list[bytes], type[FrameError] | None]:
    """The frames, and the error that ended them; any other exception is a failure of the test."""
    found: list[bytes] = []
    try:
        found.extend(encode_frame(frame) for frame in parsed)
    except FrameError as error:
        return found, type(error)
    return found, None


def check_parser(data: bytes, parts: list[bytes]) -> None:
    at_once, error = outcome(FrameParser(LIMIT).feed(data))
    parser, found, last = FrameParser(LIMIT), list[bytes](), None
    for part in parts:
        more, last = outcome(parser.feed(part))
        found += more
        if last is not None:
            break
        assert len(parser._buffer) <= LIMIT + 4
    assert (found, last) == (at_once, error)


@effort(100)
@given(data=streams, places=cuts)
def test_a_stream_is_frames_and_then_a_typed_error_however_it_is_cut(data: bytes, places: list[int]) -> None:
    check_parser(data, pieces(data, places))


@pytest.mark.parametrize("data", KEPT)
def test_a_kept_stream_is_no_trouble(data: bytes) -> None:
    check_parser(data, [data[at : at + 1] for at in range(len(data))])


def check_lane(native: ModuleType, parts: list[bytes]) -> None:
    rig = Rig(native)
    rig.learn()
    clients = [rig.seat(f"c{number}") for number in range(3)]
    assert all(client.take(request()) for client in clients)
    rig.lane.flush()
    (port,) = rig.ports
    parser = LaneParser(port.port)
    for part in parts:
        if outcome(parser.feed(part))[1] is not None:
            break
    port.port.close()
    handed_back = {name for name, *_ in rig.resumed}
    assert len(handed_back) == len(rig.resumed)
    for client in clients:
        assert len(client.written) + (client.name in handed_back) == 1
        assert not client.seat.busy or client.name in handed_back
    assert rig.lane.underway == 0


@effort(100)
@given(stream=streams | damaged(st.lists(st.integers(0, 5).map(answer), max_size=4).map(b"".join)), places=cuts)
def test_whatever_a_pod_says_the_lane_ends_each_request_once(
    native: ModuleType, stream: bytes, places: list[int]
) -> None:
    check_lane(native, pieces(stream, places))


@pytest.mark.parametrize("data", KEPT)
def test_a_kept_stream_is_no_trouble_to_the_lane(native: ModuleType, data: bytes) -> None:
    check_lane(native, [data])
    check_lane(native, [data[at : at + 1] for at in range(len(data))])


def _echo(call: InboundCall) -> None:
    call.reply(bytes(call.payload))


@pytest.fixture
async def server() -> AsyncIterator[tuple[RpcServer, TcpAddress]]:
    server = RpcServer(_echo, hello=lambda: Hello(PROTOCOL_VERSION, "server"), load=Load)
    where = await server.start(TcpAddress("127.0.0.1", 0))
    assert isinstance(where, TcpAddress)
    yield server, where
    await server.close()


async def check_server(server: RpcServer, where: TcpAddress, data: bytes) -> None:
    with structlog.testing.capture_logs() as logs:
        reader, writer = await asyncio.open_connection(where.host, where.port)
        async with asyncio.timeout(30):
            with contextlib.suppress(OSError), contextlib.closing(writer):
                writer.write(data)
                writer.write_eof()
                await reader.read()
        await until(lambda: not server.connections)
    assert server.in_flight == 0
    assert not [log for log in logs if log["log_level"] in ("error", "critical")]


@effort(40)
@given(data=streams, greeted=st.booleans())
async def test_a_server_outlives_what_a_client_sends(
    server: tuple[RpcServer, TcpAddress], data: bytes, greeted: bool
) -> None:
    await check_server(*server, (GREETING if greeted else b"") + data)


@pytest.mark.parametrize("data", KEPT)
async def test_a_server_outlives_a_kept_stream(server: tuple[RpcServer, TcpAddress], data: bytes) -> None:
    await check_server(*server, data)
    await check_server(*server, GREETING + data)
