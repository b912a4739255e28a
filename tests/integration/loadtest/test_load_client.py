"""The generator's HTTP client, against servers that answer byte by byte what a test wants."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from copydesk.loadtest import RequestFailedError
from copydesk.loadtest.client import Client, Target, correction_bodies

GOOD = b'HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n{"a":1}'
CHUNKED = b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4;x=y\r\n{"a"\r\n3\r\n:1}\r\n0\r\n\r\n'
LAST = b'HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 7\r\n\r\n{"a":1}'
TO_THE_END = b'HTTP/1.1 200 OK\r\n\r\n{"a":1}'
OLD = b'HTTP/1.0 200 OK\r\nContent-Length: 7\r\n\r\n{"a":1}'

CLOSE = b""
"""In a script: close the connection."""


class Scripted:
    """Answers the n-th request of each connection with the n-th entry of that connection's script."""

    def __init__(self, scripts: Sequence[Sequence[bytes]], split: bool) -> None:
        self.scripts, self.split = list(scripts), split
        self.connections = 0
        self.requests: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        script = self.scripts[min(self.connections, len(self.scripts) - 1)]
        self.connections += 1
        try:
            for answer in script:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                self.requests.append(head + await reader.readexactly(length))
                for byte in [answer[i : i + 1] for i in range(len(answer))] if self.split else [answer]:
                    writer.write(byte)
                    await asyncio.sleep(0)
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()


@asynccontextmanager
async def serving(*scripts: Sequence[bytes], split: bool = False) -> AsyncIterator[tuple[Client, Scripted]]:
    scripted = Scripted(scripts, split)
    server = await asyncio.start_server(scripted.serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/base"
    client = Client(Target(url=url, bodies=correction_bodies(["one", "two"], "m"), headers={"X-Key": "k"}))
    try:
        yield client, scripted
    finally:
        client.close()
        server.close()
        await server.wait_closed()


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("answer", [GOOD, CHUNKED, LAST, OLD])
async def test_answers_are_understood_however_they_are_framed_and_cut(answer: bytes, split: bool) -> None:
    async with serving([answer, answer], split=split) as (client, scripted):
        for index in range(2):
            found = await client.ask(index)
            assert (found.status, found.body) == (200, b'{"a":1}')
    kept = answer in (GOOD, CHUNKED)
    assert scripted.connections == (1 if kept else 2)


async def test_an_answer_may_end_with_the_connection() -> None:
    async with serving([TO_THE_END]) as (client, _):
        assert (await client.ask(0)).body == b'{"a":1}'


async def test_requests_carry_path_headers_and_bodies_in_turn() -> None:
    async with serving([GOOD] * 3) as (client, scripted):
        for index in range(3):
            await client.send(index)
    first, second, third = scripted.requests
    assert first.startswith(b"POST /base/v1/correct HTTP/1.1\r\nHost: 127.0.0.1:")
    assert b"\r\nX-Key: k\r\n" in first
    assert first.endswith(b'{"text":"one","model":"m"}')
    assert second.endswith(b'{"text":"two","model":"m"}')
    assert third == first


async def test_a_kept_connection_that_the_server_closed_is_replaced_without_a_failure() -> None:
    async with serving([GOOD, CLOSE], [GOOD]) as (client, scripted):
        await client.send(0)
        await client.send(1)
    assert scripted.connections == 2


async def test_each_request_in_flight_has_a_connection_of_its_own() -> None:
    async with serving([GOOD]) as (client, scripted):
        await asyncio.gather(*(client.send(index) for index in range(20)))
    assert scripted.connections == 20


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        ([b"HTTP/1.1 429 Too Many\r\nContent-Length: 4\r\n\r\nbusy"], "http_429"),
        ([b"HTTP/1.1 204 No Content\r\n\r\n"], "http_204"),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>"], "not_json"),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"], "disconnected"),
        ([CLOSE], "disconnected"),
        ([b"SSH-2.0-x\r\n\r\n"], "bad_answer"),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"], "bad_answer"),
        ([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"], "bad_answer"),
    ],
)
async def test_what_is_no_good_answer_fails_with_its_kind(script: Sequence[bytes], kind: str) -> None:
    async with serving(script) as (client, _):
        with pytest.raises(RequestFailedError) as caught:
            await client.send(0)
    assert caught.value.kind == kind


async def test_a_request_that_is_cancelled_takes_its_connection_along() -> None:
    unfinished = b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n"
    async with serving([unfinished, GOOD], [GOOD]) as (client, scripted):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await client.send(0)
        await client.send(0)
    assert scripted.connections == 2
