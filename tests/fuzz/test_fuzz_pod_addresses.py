"""Addresses of pods as an enemy would publish them: what no address can be is an address that nobody is at."""

from __future__ import annotations

import asyncio

import pytest

from copydesk.common.rpc import Channel, RpcConnectError, TcpAddress
from copydesk.gateway.http_pod.channel import HttpChannel
from tests.fuzz.corpus import cases

PORT = 9


@pytest.mark.parametrize("host", [pytest.param(data.decode(), id=name) for name, data in cases("pod_addresses")])
async def test_a_host_that_can_be_none_refuses_at_once(host: str) -> None:
    failures: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    address = TcpAddress(host, PORT)
    with pytest.raises(RpcConnectError, match="cannot connect") as rpc:
        await Channel.open(address, name="a gateway", timeout=60)
    with pytest.raises(RpcConnectError, match="cannot connect") as http:
        await HttpChannel.open(address, model="m", timeout=60)
    assert "no answer" not in rpc.value.reason + http.value.reason
    assert not failures
