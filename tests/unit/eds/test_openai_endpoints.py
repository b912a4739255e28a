"""Endpoints that speak HTTP: how they are listed, and how they are looked for."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from copydesk.common.messages import Endpoint, EndpointProtocol, EndpointState
from copydesk.eds.endpoint_file import EndpointFileError, read_endpoints
from copydesk.eds.probe import Sighting, probe
from tests.fixtures.openai_server import OpenAiServer


def test_a_static_file_says_what_an_endpoint_speaks(tmp_path: Path) -> None:
    path = tmp_path / "endpoints.yaml"
    path.write_text("m:\n  - {host: h, port: 8000, protocol: openai, capacity: 128}\n  - {host: h, port: 9000}\n")
    first, second = read_endpoints(path)["m"]
    assert (first.protocol, first.capacity) == (EndpointProtocol.OPENAI, 128)
    assert (second.protocol, second.capacity) == (EndpointProtocol.RPC, 0)


@pytest.mark.parametrize("wrong", ["protocol: grpc", "capacity: -1", "capacity: many"])
def test_what_it_cannot_be_is_named_with_its_line(tmp_path: Path, wrong: str) -> None:
    path = tmp_path / "endpoints.yaml"
    path.write_text(f"m:\n  - {{host: h, port: 8000, {wrong}}}\n")
    with pytest.raises(EndpointFileError) as caught:
        read_endpoints(path)
    assert caught.value.line == 2


async def test_one_that_listens_is_alive_and_one_that_does_not_is_gone() -> None:
    server = await OpenAiServer().start()
    endpoint = server.endpoint()
    assert await probe("m", endpoint, token="", timeout=5) is Sighting.ALIVE
    await server.stop()
    assert await probe("m", endpoint, token="", timeout=5) is Sighting.GONE


async def test_one_that_answers_that_it_is_not_up_may_go_and_what_is_no_answer_proves_nothing() -> None:
    server = await OpenAiServer(key="secret").start()
    assert await probe("m", server.endpoint(), token="secret", timeout=5) is Sighting.ALIVE
    assert await probe("m", server.endpoint(), token="other", timeout=5) is Sighting.UNKNOWN
    server.behaviour = "starting"
    assert await probe("m", server.endpoint(), token="secret", timeout=5) is Sighting.GONE
    await server.stop()


@pytest.mark.parametrize("answer", [b"", b"SSH-2.0-OpenSSH_9.2\r\n", b"x" * 100_000])
async def test_an_answer_that_is_no_http_proves_nothing(answer: bytes) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    endpoint = Endpoint(
        id="p", host="127.0.0.1", port=port, state=EndpointState.READY, protocol=EndpointProtocol.OPENAI
    )
    assert await probe("m", endpoint, token="", timeout=5) is Sighting.UNKNOWN
    server.close()
