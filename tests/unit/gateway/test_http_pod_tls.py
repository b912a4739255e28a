"""A server that speaks HTTP is held to the same certificates as a pod, where these are asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from copydesk.common.rpc import RpcError, TcpAddress
from copydesk.common.tls import ClientTls
from copydesk.gateway.http_pod.channel import HttpChannel
from tests.fixtures.fleet_certificates import gateway_client, make_certificates, pod_server
from tests.fixtures.openai_server import OpenAiServer


async def open_channel(server: OpenAiServer, tls: ClientTls | None) -> HttpChannel:
    address = TcpAddress("127.0.0.1", server.port)
    return await HttpChannel.open(address, model="gec-en", timeout=10.0, tls=tls)


async def test_a_server_of_the_fleets_authority_is_asked_over_https(tmp_path: Path) -> None:
    fleet = make_certificates(tmp_path)
    server = await OpenAiServer().start(tls=pod_server(fleet))
    channel = await open_channel(server, gateway_client(fleet))
    assert (await channel.ping(10.0)).state.value == "ready"
    await channel.close()
    await server.stop()


async def test_a_server_without_tls_or_of_another_authority_gets_nothing(tmp_path: Path) -> None:
    fleet, other = make_certificates(tmp_path / "fleet"), make_certificates(tmp_path / "other")
    for tls in (None, pod_server(other)):
        server = await OpenAiServer().start(tls=tls)
        with pytest.raises(RpcError):
            await open_channel(server, gateway_client(fleet))
        assert server.received == []
        await server.stop()
