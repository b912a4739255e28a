import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from copydesk.cli.bench.http_client import HttpClient, HttpError, get

Answer = Callable[[bytes], bytes]


@asynccontextmanager
async def serving(answer: Answer, *, close_after: int = 1_000) -> AsyncIterator[tuple[int, list[int]]]:
    """Serve on a free port; yields it and the number of requests on each connection."""
    counts: list[int] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = len(counts)
        counts.append(0)
        try:
            while counts[number] < close_after:
                head = await reader.readuntil(b"\r\n\r\n")
                length = head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]
                body = await reader.readexactly(int(length or 0))
                counts[number] += 1
                writer.write(answer(body))
                await writer.drain()
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], counts
    finally:
        server.close()


def echo(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


async def closing(client: HttpClient, work: Awaitable[bytes]) -> bytes:
    try:
        return await work
    finally:
        await client.close()


async def test_requests_one_after_another_share_a_connection_and_those_at_once_do_not() -> None:
    async with serving(echo) as (port, counts):
        client = HttpClient("127.0.0.1", port)
        assert [await client.post("/", body) for body in (b"one", b"two")] == [b"one", b"two"]
        assert await asyncio.gather(*(client.post("/", b"%d" % n) for n in range(3))) == [b"0", b"1", b"2"]
        await client.close()
    assert sorted(counts) == [1, 1, 3]


async def test_a_connection_that_the_server_closed_is_replaced() -> None:
    async with serving(echo, close_after=1) as (port, counts):
        client = HttpClient("127.0.0.1", port)
        assert await client.post("/", b"one") == b"one"
        await asyncio.sleep(0.01)
        assert await client.post("/", b"two") == b"two"
        await client.close()
    assert counts == [1, 1]


async def test_chunks_are_put_together() -> None:
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA;x=1\r\n0123456789\r\n0\r\n\r\n"
    async with serving(lambda body: chunked) as (port, _):
        assert await get("127.0.0.1", port, "/") == b"abc0123456789"


async def test_an_answer_that_is_no_200_carries_its_status_and_body() -> None:
    async with serving(lambda body: b"HTTP/1.1 400 Bad\r\nContent-Length: 4\r\n\r\nno!!") as (port, _):
        client = HttpClient("127.0.0.1", port)
        with pytest.raises(HttpError, match="HTTP 400: no!!") as caught:
            await closing(client, client.post("/", b"{}"))
    assert caught.value.status == 400


async def test_a_connection_that_is_lost_midway_is_an_error() -> None:
    half = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"
    async with serving(lambda body: half, close_after=1) as (port, counts):
        client = HttpClient("127.0.0.1", port)
        with pytest.raises(HttpError, match="closed the connection"):
            await closing(client, client.post("/", b"{}"))
    assert counts == [1]


async def test_a_request_into_a_connection_that_the_server_is_just_closing_is_sent_again() -> None:
    answers = [echo(b"one"), b"", echo(b"two")]
    async with serving(lambda body: answers.pop(0), close_after=2) as (port, counts):
        client = HttpClient("127.0.0.1", port)
        assert await client.post("/", b"x") == b"one"
        assert await client.post("/", b"x") == b"two"
        await client.close()
    assert counts == [2, 1]
