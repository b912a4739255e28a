"""Bad and odd requests over a real socket: each gets an answer, none a dropped connection."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from tests.fixtures.fake_pod import FakePod
from tests.fixtures.nats import running_nats
from tests.integration.gateway.conftest import GatewayProcess, Site, eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

JSON = "Content-Type: application/json\r\n"
GOOD = b'{"text": "She go out."}'


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def code(self) -> Any:
        return json.loads(self.body)["error"]["code"]


class Connection:
    """A client that sends exactly the bytes it is told."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, *parts: bytes | str) -> None:
        for part in parts:
            self._writer.write(part.encode() if isinstance(part, str) else part)
            await self._writer.drain()

    async def answer(self) -> Answer:
        async with asyncio.timeout(15):
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = head.strip().split("\r\n")
            headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
            body = await self._reader.readexactly(int(headers.get("content-length", 0)))
        return Answer(int(first.split()[1]), headers, body)

    async def closed(self) -> bool:
        async with asyncio.timeout(15):
            return await self._reader.read() == b""

    async def close(self) -> None:
        self._writer.close()


@dataclass
class Front:
    """The gateway, with a pod behind it."""

    gateway: GatewayProcess
    open_connections: list[Connection]

    async def connect(self) -> Connection:
        connection = Connection(*await asyncio.open_connection("127.0.0.1", self.gateway.port, limit=1 << 20))
        self.open_connections.append(connection)
        return connection

    async def ask(self, *parts: bytes | str) -> Answer:
        connection = await self.connect()
        await connection.send(*parts)
        return await connection.answer()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GatewayProcess]:
    """One for all: whatever is sent on a connection must not matter to those who come later."""
    directory = tmp_path_factory.mktemp("gateway")
    async with AsyncExitStack() as stack:
        nats = stack.enter_context(running_nats(directory))
        site = Site(stack, directory)
        pod = await FakePod("a").start()
        stack.push_async_callback(pod.stop)
        (await site.discovery(nats)).announce(pod.endpoint())
        gateway = await site.gateway(nats.url, body_timeout_ms=400)
        client = await site.client(gateway)

        async def ready() -> bool:
            return (await client.get("/readyz")).status_code == 200

        await eventually(ready)
        yield gateway


@pytest_asyncio.fixture(loop_scope="module")
async def front(gateway: GatewayProcess) -> AsyncIterator[Front]:
    front = Front(gateway, [])
    yield front
    for connection in front.open_connections:
        await connection.close()


def post(length: int | None = None, *headers: str, path: str = "/v1/correct", version: str = "1.1") -> str:
    declared = "" if length is None else f"Content-Length: {length}\r\n"
    extra = "".join(f"{header}\r\n" for header in headers)
    return f"POST {path} HTTP/{version}\r\nHost: x\r\n{JSON}{declared}{extra}\r\n"


def chunked(body: bytes, size: int) -> bytes:
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


async def test_good_bodies_are_corrected_however_they_are_cut(front: Front) -> None:
    connection = await front.connect()
    await connection.send(post(len(GOOD)), *(GOOD[i : i + 1] for i in range(len(GOOD))))
    assert (await connection.answer()).status == 200
    await connection.send(post(None, "Transfer-Encoding: chunked"), chunked(GOOD, 3))
    answer = await connection.answer()
    assert json.loads(answer.body)["corrected"] == "She goes out."


async def test_pipelined_requests_are_answered_in_order(front: Front) -> None:
    connection = await front.connect()
    bodies = [b'{"text": "One go on."}', b'{"text": 2}', b'{"text": "Two go on."}']
    await connection.send("".join(post(len(body)) + body.decode() for body in bodies))
    answers = [await connection.answer() for _ in bodies]
    assert [answer.status for answer in answers] == [200, 400, 200]
    assert json.loads(answers[2].body)["corrected"] == "Two goes on."


@pytest.mark.parametrize("size", [300_000, 1_000_000, 20_000_000])
async def test_a_large_body_is_answered_not_dropped(front: Front, size: int) -> None:
    answer = await front.ask(post(size), b"a" * size)
    assert (answer.status, answer.code) == (413, "body_too_large")
    assert json.loads(answer.body)["error"]["limit"] == 262_144


async def test_a_large_chunked_body_is_answered_not_dropped(front: Front) -> None:
    answer = await front.ask(post(None, "Transfer-Encoding: chunked"), chunked(b"a" * 1_000_000, 8_000))
    assert (answer.status, answer.code) == (413, "body_too_large")


async def test_a_connection_serves_on_after_a_large_body(front: Front) -> None:
    connection = await front.connect()
    await connection.send(post(1_000_000), b"a" * 1_000_000)
    assert (await connection.answer()).status == 413
    await connection.send(post(len(GOOD)), GOOD)
    assert (await connection.answer()).status == 200


@pytest.mark.parametrize(("path", "status"), [("/nope", 404), ("/healthz", 405), ("/v1/correct", 415)])
async def test_a_client_that_will_close_sees_an_early_answer_to_a_large_body(
    front: Front, path: str, status: int
) -> None:
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 3000000\r\n\r\n"
    connection = await front.connect()
    await connection.send(head, b"a" * 3_000_000)
    assert (await connection.answer()).status == status
    assert await connection.closed()


async def test_a_huge_length_with_nothing_behind_it_is_answered(front: Front) -> None:
    answer = await front.ask(post(10**12))
    assert (answer.status, answer.code) == (413, "body_too_large")


async def test_a_client_that_asks_first_is_told_without_sending(front: Front) -> None:
    answer = await front.ask(post(10_000_000, "Expect: 100-continue"))
    assert (answer.status, answer.headers["connection"]) == (413, "close")


async def test_a_body_that_stops_short_is_answered_after_a_while(front: Front) -> None:
    answer = await front.ask(post(len(GOOD) + 10), GOOD)
    assert (answer.status, answer.code, answer.headers["connection"]) == (408, "body_timeout", "close")


async def test_a_body_that_trickles_in_is_answered_after_a_while(front: Front) -> None:
    connection = await front.connect()
    await connection.send(post(1_000))

    async def trickle() -> None:
        for _ in range(1_000):
            await connection.send(b" ")
            await asyncio.sleep(0.05)

    trickling = asyncio.ensure_future(trickle())
    assert (await connection.answer()).status == 408
    trickling.cancel()


async def test_more_bytes_than_declared_do_not_spoil_the_first_answer(front: Front) -> None:
    connection = await front.connect()
    await connection.send(post(len(GOOD)), GOOD, b"and then some more that is no request\r\n\r\n")
    assert (await connection.answer()).status in (200, 400)


@pytest.mark.parametrize(
    "head",
    [
        "nonsense\r\n\r\n",
        "POST /v1/correct HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
        "POST /v1/correct HTTP/1.1\r\nHost: x\r\nContent-Length: five\r\n\r\n",
        "POST /v1/correct HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        "POST /v1/correct HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
async def test_what_is_no_http_is_a_400(front: Front, head: str) -> None:
    assert (await front.ask(head)).status in (400, 415)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "invalid_json"),
        (b"{", "invalid_json"),
        (b"[" * 200_000, "invalid_type"),
        (b"{}", "missing_text"),
        (b'{"text": ""}', "empty_text"),
        (b'{"text": "\\ud800"}', "invalid_unicode"),
        (b'{"text": "\xed\xa0\x80"}', "invalid_unicode"),
        (b'{"text": "\\u0000"}', "nul_character"),
        (b'{"text": "a", "x": 1}', "unknown_field"),
        (json.dumps({"texts": ["a"] * 10_000}).encode(), "too_many_texts"),
        (json.dumps({"text": "a" * 20_001}).encode(), "text_too_long"),
    ],
)
async def test_a_bad_body_has_its_code_on_the_wire(front: Front, body: bytes, code: str) -> None:
    answer = await front.ask(post(len(body)), body)
    assert (answer.status, answer.code) == (400, code)
    assert answer.headers["x-request-id"]


@pytest.mark.asyncio(loop_scope="function")
async def test_an_idle_connection_is_still_answered_after_sigterm_and_then_closed(site: Site) -> None:
    gateway = await site.gateway("nats://127.0.0.1:1", drain_grace_ms=1_500)
    connection = Connection(*await asyncio.open_connection("127.0.0.1", gateway.port))
    await connection.send("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    assert "connection" not in (await connection.answer()).headers
    gateway.terminate()

    async def stopping() -> bool:
        return "stopping" in gateway.log()

    await eventually(stopping)
    await connection.send("GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
    answer = await connection.answer()
    assert (answer.status, answer.headers["connection"]) == (503, "close")
    assert json.loads(answer.body)["status"] == "stopping"
    assert await connection.closed()
    await connection.close()
    assert await gateway.ended() == 0


async def test_an_old_client_is_served_and_closed(front: Front) -> None:
    connection = await front.connect()
    await connection.send(post(len(GOOD), version="1.0"), GOOD)
    assert (await connection.answer()).status == 200
    assert await connection.closed()


@pytest.mark.parametrize("part", [b"a" * 50_000, b"X-A: b\r\n" * 5_000, b"X-A: " + b"b" * 1_000 + b"\r\n"])
async def test_headers_without_end_are_refused_and_not_kept(front: Front, part: bytes) -> None:
    connection = await front.connect()
    with contextlib.suppress(ConnectionError):
        await connection.send("GET /healthz HTTP/1.1\r\nX-Start: ", *([part] * (8_000_000 // len(part))))
        pytest.fail("eight megabytes of headers were taken")
    assert (await front.ask("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")).status == 200


async def test_headers_that_are_too_large_have_their_code(front: Front) -> None:
    connection = await front.connect()
    await connection.send("GET /healthz HTTP/1.1\r\nX-A: ", b"a" * 65_536)
    answer = await connection.answer()
    assert (answer.status, answer.code, answer.headers["connection"]) == (431, "head_too_large", "close")
    assert await connection.closed()


async def test_trailers_without_end_close_the_connection(front: Front) -> None:
    connection = await front.connect()
    with contextlib.suppress(ConnectionError):
        await connection.send(post(None, "Transfer-Encoding: chunked"), b"0\r\n", *[b"X-A: b\r\n" * 5_000] * 200)
        pytest.fail("eight megabytes of trailers were taken")


async def test_a_trailer_is_no_header(front: Front) -> None:
    trailed = chunked(GOOD, 5).removesuffix(b"\r\n") + b"X-Request-Id: from-a-trailer\r\n\r\n"
    answer = await front.ask(post(None, "Transfer-Encoding: chunked"), trailed)
    assert answer.status == 200
    assert answer.headers["x-request-id"] != "from-a-trailer"


SMUGGLED = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.mark.parametrize(
    "fields",
    [
        f"Content-Length: {len(GOOD)}\r\nContent-Length: {len(GOOD)}",
        f"Content-Length: {len(GOOD)}\r\nContent-Length: 0",
        f"Content-Length: {len(GOOD)}\r\nTransfer-Encoding: chunked",
        f"Transfer-Encoding: chunked\r\nContent-Length: {len(GOOD)}",
        "Content-Length: +22",
        "Content-Length: 22, 22",
        "Content-Length: 0x16",
        "Content-Length: 2 2",
        f"Content-Length : {len(GOOD)}",
        "Content-Length: 99999999999999999999999999",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: xchunked",
        "X-A: b\x00c",
    ],
)
async def test_what_two_servers_could_read_as_different_requests_is_refused_and_closed(
    front: Front, fields: str
) -> None:
    connection = await front.connect()
    head = f"POST /v1/correct HTTP/1.1\r\nHost: x\r\n{JSON}{fields}\r\n\r\n"
    await connection.send(head + GOOD.decode() + SMUGGLED)
    answer = await connection.answer()
    assert (answer.status, answer.code, answer.headers["connection"]) == (400, "invalid_http", "close")
    assert await connection.closed()


@pytest.mark.parametrize("body", [b"5\r\nhello\r\nx\r\n", b"5\r\nhelloo\r\n0\r\n\r\n", b"-1\r\n\r\n"])
async def test_a_chunk_that_is_none_is_refused_and_closed(front: Front, body: bytes) -> None:
    connection = await front.connect()
    await connection.send(post(None, "Transfer-Encoding: chunked").encode() + body)
    answer = await connection.answer()
    assert (answer.status, answer.code) == (400, "invalid_http")
    assert await connection.closed()


async def test_what_stands_behind_a_body_is_the_next_request_and_nothing_of_this_one(front: Front) -> None:
    connection = await front.connect()
    await connection.send(post(len(GOOD)), GOOD, SMUGGLED, post(len(GOOD)), GOOD)
    answers = [await connection.answer() for _ in range(3)]
    assert [answer.status for answer in answers] == [200, 200, 200]
    assert json.loads(answers[1].body) == {"status": "ok"}


async def test_a_request_that_is_none_does_not_spoil_the_answers_before_it(front: Front) -> None:
    connection = await front.connect()
    await connection.send(post(len(GOOD)) + GOOD.decode() + "nonsense\r\n\r\n")
    answer = await connection.answer()
    assert (answer.status, json.loads(answer.body)["corrected"]) == (200, "She goes out.")
    answer = await connection.answer()
    assert (answer.status, answer.code) == (400, "invalid_http")
    assert await connection.closed()


async def test_a_client_that_asks_first_is_told_to_send(front: Front) -> None:
    connection = await front.connect()
    await connection.send(post(len(GOOD), "Expect: 100-continue"))
    assert (await connection.answer()).status == 100
    await connection.send(GOOD)
    answer = await connection.answer()
    assert (answer.status, json.loads(answer.body)["corrected"]) == (200, "She goes out.")


async def test_a_slow_body_within_the_limits_is_closed_after_its_answer(front: Front) -> None:
    connection = await front.connect()
    await connection.send(post(len(GOOD)), GOOD[:-1])
    answer = await connection.answer()
    assert (answer.status, answer.code, answer.headers["connection"]) == (408, "body_timeout", "close")
    assert await connection.closed()


async def test_hundreds_of_pipelined_requests_are_all_answered(front: Front) -> None:
    connection = await front.connect()
    one = post(len(GOOD)).encode() + GOOD
    sending = asyncio.ensure_future(connection.send(one * 500))
    answers = [await connection.answer() for _ in range(500)]
    await sending
    assert {answer.status for answer in answers} == {200}
    assert len({answer.headers["x-request-id"] for answer in answers}) == 500


async def test_a_client_that_reads_late_gets_every_answer(front: Front) -> None:
    connection = await front.connect()
    long = json.dumps({"text": "They go out. " * 1_000}).encode()
    sending = asyncio.ensure_future(connection.send((post(len(long)).encode() + long) * 20))
    await asyncio.sleep(0.5)
    answers = [await connection.answer() for _ in range(20)]
    await sending
    assert all(json.loads(answer.body)["corrected"] == "They goes out. " * 1_000 for answer in answers)
