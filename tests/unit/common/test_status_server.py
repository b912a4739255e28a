"""The small HTTP server for probes: what it answers, and what it puts up with."""

from __future__ import annotations

import asyncio
import http.client
import socket
from http import HTTPStatus

import pytest

from copydesk.common import status_server
from copydesk.common.status_server import Answer, StatusPortError, StatusServer, respond
from tests.fixtures.until import until

PATHS = {"/healthz": lambda: Answer(b"{}"), "/sick": lambda: Answer(b"no", status=HTTPStatus.SERVICE_UNAVAILABLE)}


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("GET /healthz HTTP/1.1", 200),
        ("GET /healthz?verbose HTTP/1.0", 200),
        ("HEAD /healthz HTTP/1.1", 200),
        ("GET /sick HTTP/1.1", 503),
        ("GET / HTTP/1.1", 404),
        ("POST /healthz HTTP/1.1", 405),
        ("GET /healthz", 400),
        ("GET /healthz HTTP/2", 400),
        ("\xff\xfe", 400),
        ("", 400),
    ],
)
def test_a_request_is_answered_by_its_first_line(line: str, status: int) -> None:
    head, _, body = respond(f"{line}\r\nHost: x\r\n\r\n".encode("latin-1"), PATHS).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert (body == b"") is line.startswith("HEAD")


async def ask(port: int, method: str = "GET", path: str = "/healthz") -> tuple[int, bytes]:
    def talk() -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        connection.request(method, path)
        answer = connection.getresponse()
        found = answer.status, answer.read()
        connection.close()
        return found

    return await asyncio.to_thread(talk)


async def test_it_serves_an_ordinary_client() -> None:
    server = StatusServer("127.0.0.1", 0, PATHS)
    await server.start()
    assert await ask(server.port) == (200, b"{}")
    assert await ask(server.port, "HEAD") == (200, b"")
    assert (await ask(server.port, path="/nothing"))[0] == 404
    await server.close()


async def test_a_head_without_end_is_refused_and_a_slow_one_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_server, "HEAD_SECONDS", 0.05)
    server = StatusServer("127.0.0.1", 0, PATHS)
    await server.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"GET /healthz HTTP/1.1\r\nX: " + b"y" * 9_000)
    assert (await reader.read()).startswith(b"HTTP/1.1 431 ")
    writer.close()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"GET /hea")
    assert await reader.read() == b""
    writer.close()
    await server.close()


async def test_many_connections_that_say_nothing_do_not_stay_in_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_server, "CONNECTIONS", 2)
    server = StatusServer("127.0.0.1", 0, PATHS)
    await server.start()
    idle = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(4)]
    assert await ask(server.port) == (200, b"{}")
    await until(lambda: sum(reader.at_eof() for reader, _ in idle) == 3)
    for _, writer in idle:
        writer.close()
    await server.close()


async def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StatusPortError, match=f"127.0.0.1:{port}: ") as caught:
            await StatusServer("127.0.0.1", port, PATHS).start()
    assert caught.value.port == port


@pytest.mark.parametrize("host", ["..", "x" * 300])
async def test_a_host_that_can_be_none_is_named(host: str) -> None:
    with pytest.raises(StatusPortError, match="no name of a host") as caught:
        await StatusServer(host, 0, PATHS).start()
    assert caught.value.host == host
