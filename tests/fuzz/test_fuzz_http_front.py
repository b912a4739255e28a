"""HTTP as an enemy would write it, for the gateway's protocol without a network, and a gateway over real sockets.

What the answer to each kind of odd request is: tests/integration/gateway/test_gateway_raw_http.py. That the
compiled lane takes no head that httptools does not: tests/unit/gateway/test_lane_heads.py.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import httptools
import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st

from copydesk.gateway.http import protocol
from copydesk.gateway.http.exchange import Exchange
from tests.fixtures.fake_pod import FakePod
from tests.fixtures.nats import running_nats
from tests.fuzz.corpus import cases, effort
from tests.fuzz.hostile_bytes import damaged, pieces
from tests.integration.gateway.conftest import GatewayProcess, Site, eventually
from tests.unit.gateway.wire import Hot, turn

STATUSES = {200, 202, 400, 401, 404, 405, 408, 411, 413, 414, 415, 422, 431, 501, 503, 505}
KEPT = [pytest.param(data, id=name) for name, data in cases("http_front")]
MOST_GROWTH_KB = 100_000
MOST_REQUESTS = 20

bodies = st.sampled_from([b"{}", b'{"text": "She go out."}', b"x" * 1_200, b'{"text":' * 100, b""]) | st.binary(
    max_size=20
)
lines = st.sampled_from(
    [
        b"Content-Length: 0",
        b"Content-Length: 5",
        b"Content-Length: 99999999999999999999999",
        b"Content-Length: -1",
        b"Transfer-Encoding: chunked",
        b"Transfer-Encoding: gzip, chunked",
        b"Transfer-Encoding: chunked, identity",
        b"Expect: 100-continue",
        b"Connection: close",
        b"Connection: Upgrade\r\nUpgrade: websocket",
        b"Upgrade: h2c",
        b"Content-Encoding: gzip",
        b"X-Request-Id: " + b"i" * 300,
        b"X-Request-Deadline-Ms: " + b"9" * 5_000,
        b"Content-Type: text/plain",
        b"Content-Type: application/json; charset=\xff",
        b" folded",
        b"no colon",
        b"traceparent: 00-x",
    ]
)
starts = st.sampled_from(
    [
        b"POST /hot HTTP/1.1",
        b"POST /v1/correct HTTP/1.1",
        b"POST /v2/check?text=%ff HTTP/1.1",
        b"GET /healthz HTTP/1.0",
        b"OPTIONS * HTTP/1.1",
        b"POST http://x/hot HTTP/1.1",
        b"PRI * HTTP/2.0",
        b"POST /%00%ff/.. HTTP/1.1",
        b"GET / HTTP/9.9",
    ]
)


def _request(start: bytes, more: Sequence[bytes], body: bytes, told: int | None) -> bytes:
    length = [] if told is None else [b"Content-Length: %d" % (len(body) + told)]
    return b"\r\n".join([start, b"Host: x", b"Content-Type: application/json", *length, *more, b"", b""]) + body


def _chunked(start: bytes, body: bytes, size: bytes) -> bytes:
    head = _request(start, [b"Transfer-Encoding: chunked"], b"", None)
    return head + size + b"\r\n" + body + b"\r\n0\r\n\r\n"


requests = st.one_of(
    st.builds(_request, starts, st.lists(lines, max_size=2), bodies, st.none() | st.integers(-2, 2)),
    st.builds(_request, starts, st.just([]), bodies, st.just(0)),
    st.builds(
        _chunked,
        starts,
        bodies,
        st.sampled_from([b"2", b"0", b"-1", b"fffffffffffffffff", b"2;x=" + b"y" * 99, b"g"]),
    ),
)
streams = damaged(st.lists(requests, max_size=3).map(b"".join), 3)
cuts = st.lists(st.integers(0, 1 << 16), max_size=4)
sizes = st.integers(1, 100) | st.just(protocol.SLICE_BYTES)


class Answers:
    """What httptools makes of all that came back; it raises for what is no HTTP."""

    def __init__(self, data: bytes) -> None:
        self.statuses: list[int] = []
        self._parser = httptools.HttpResponseParser(self)
        with contextlib.suppress(httptools.HttpParserUpgrade):
            self._parser.feed_data(data)

    def on_headers_complete(self) -> None:
        self.statuses.append(self._parser.get_status_code())


@contextlib.contextmanager
def slices(size: int) -> Iterator[None]:
    """Have the protocol parse so much at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(protocol, "SLICE_BYTES", size)
        yield


async def check_protocol(parts: Sequence[bytes]) -> None:
    hot = Hot()
    hot.behave = lambda exchange: exchange.respond(b"{}")
    asked = b"".join(parts).count(b"HTTP/")
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    for part in parts:
        if hot.wire.closed:
            break
        hot.send(part)
        assert hot.connection.pipeline or not hot.connection.has_more
        await turn()
    hot.clock.advance(1_000.0)
    await turn()
    hot.connection.connection_lost(None)
    await turn()
    found = Answers(hot.wire.written)
    assert set(found.statuses) <= STATUSES | {100}
    assert len([status for status in found.statuses if status != 100]) <= asked + 1
    assert all(len(exchange.body) <= hot.limit for exchange in hot.taken)
    assert hot.metrics.in_flight == 0
    assert hot.clock.timers == 0
    assert not failures


@effort(100)
@given(data=streams, places=cuts, size=sizes)
async def test_the_protocol_answers_or_closes_and_keeps_nothing(data: bytes, places: list[int], size: int) -> None:
    with slices(size):
        await check_protocol(pieces(data, places))


async def outcome(parts: Sequence[bytes], late: bool) -> tuple[list[int], list[bytes], bool]:
    """Return what was answered, which bodies were taken, and whether it was closed; `late` answers take a turn."""
    hot = Hot()
    waiting: list[Exchange] = []
    hot.behave = waiting.append if late else lambda exchange: exchange.respond(b"{}")
    for part in parts:
        hot.send(part)
        if not late:
            await turn()
    for _ in range(MOST_REQUESTS):
        while waiting:
            waiting.pop(0).respond(b"{}")
        await turn()
    closed = hot.wire.closed
    hot.connection.connection_lost(None)
    await turn()
    return Answers(hot.wire.written).statuses, [exchange.body for exchange in hot.taken], closed


@effort(100)
@given(data=streams, places=cuts, size=sizes, late=st.booleans())
async def test_the_answers_are_the_same_however_little_is_parsed_at_once(
    data: bytes, places: list[int], size: int, late: bool
) -> None:
    parts = pieces(data, places)
    with slices(len(data) + 1):
        whole = await outcome(parts, late)
    with slices(size):
        assert await outcome(parts, late) == whole


@pytest.mark.parametrize("data", KEPT)
async def test_a_kept_request_is_no_trouble_to_the_protocol(data: bytes) -> None:
    await check_protocol([data])
    await check_protocol([data[at : at + 1] for at in range(min(len(data), 3_000))])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def front(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GatewayProcess]:
    """One gateway for all, which must serve at the end as at the beginning, and be no larger."""
    directory = tmp_path_factory.mktemp("gateway")
    async with AsyncExitStack() as stack:
        nats = stack.enter_context(running_nats(directory))
        site = Site(stack, directory)
        pod = await FakePod("a").start()
        stack.push_async_callback(pod.stop)
        (await site.discovery(nats)).announce(pod.endpoint())
        gateway = await site.gateway(nats.url, body_timeout_ms=200)
        client = await site.client(gateway)

        async def serves() -> bool:
            answer = await client.post("/v1/correct", json={"text": "She go out."})
            return answer.status_code == 200 and answer.json()["corrected"] == "She goes out."

        async def idle() -> bool:
            text = (await client.get("/metrics")).text
            gauges = [line for line in text.splitlines() if line.startswith("copydesk_gateway_requests_in_flight")]
            return bool(gauges) and all(float(line.split()[-1]) <= 1 for line in gauges)

        await eventually(serves)
        before = resident_kb(gateway)
        yield gateway
        await eventually(serves)
        await eventually(idle)
        assert resident_kb(gateway) - before < MOST_GROWTH_KB


def resident_kb(gateway: GatewayProcess) -> int:
    status = Path(f"/proc/{gateway.pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")))


async def check_front(front: GatewayProcess, parts: Sequence[bytes]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
    received = b""
    async with asyncio.timeout(30):
        with contextlib.suppress(OSError), contextlib.closing(writer):
            for part in parts:
                writer.write(part)
                await writer.drain()
            writer.write_eof()
            while more := await reader.read(1 << 16):
                received += more
    assert set(Answers(received).statuses) <= STATUSES | {100}


@effort(30)
@given(data=streams, places=cuts)
@pytest.mark.asyncio(loop_scope="module")
async def test_a_gateway_answers_or_closes(front: GatewayProcess, data: bytes, places: list[int]) -> None:
    await check_front(front, pieces(data, places))


@pytest.mark.parametrize("data", KEPT)
@pytest.mark.asyncio(loop_scope="module")
async def test_a_kept_request_is_no_trouble_to_a_gateway(front: GatewayProcess, data: bytes) -> None:
    await check_front(front, [data])
