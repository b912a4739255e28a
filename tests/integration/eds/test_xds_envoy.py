"""A real Envoy, started with the bootstrap of docs/xds.md, follows what discovery serves, and outlives it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from copydesk.common.messages import Endpoint, EndpointsSnapshot, EndpointState
from copydesk.common.rpc import Channel, Status, TcpAddress
from copydesk.common.tasks import CorrectSentence
from copydesk.eds.xds.metrics import XdsMetrics
from copydesk.eds.xds.server import XdsServer
from copydesk.eds.xds.terms import Terms, Tls
from tests.fixtures.certificates import self_signed
from tests.fixtures.envoy import Envoy, NamedServer, printed, running_envoy
from tests.fixtures.fake_pod import FakePod

MODEL = "gec-en"
REQUESTS = 40


def snapshot(*endpoints: Endpoint, generation: int = 1) -> EndpointsSnapshot:
    return EndpointsSnapshot(model=MODEL, epoch=1, generation=generation, sent_at=0.0, endpoints=endpoints)


@pytest.fixture
async def xds() -> AsyncIterator[XdsServer]:
    server = XdsServer("127.0.0.1", 0, Terms(slow_start=0.0), XdsMetrics(CollectorRegistry()))
    await server.start()
    yield server
    await server.close()


@pytest.fixture
async def pods() -> AsyncIterator[list[NamedServer]]:
    servers = [await NamedServer(f"pod-{number}").start() for number in (1, 2, 3)]
    yield servers
    for server in servers:
        await server.stop()


@pytest.fixture(params=[False, True], ids=["sotw", "delta"])
async def envoy(request: pytest.FixtureRequest, xds: XdsServer, tmp_path: Path) -> AsyncIterator[Envoy]:
    async with running_envoy(tmp_path, xds.port, incremental=request.param) as envoy:
        yield envoy


async def test_envoy_follows_a_scale_up_a_drain_and_a_removal(
    xds: XdsServer, envoy: Envoy, pods: list[NamedServer]
) -> None:
    one, two, three = pods
    xds.on_snapshot(snapshot(one.endpoint(), two.endpoint()))
    await envoy.until_health({one.port: "HEALTHY", two.port: "HEALTHY"})
    assert set(await envoy.ask(REQUESTS)) == {"pod-1", "pod-2"}

    warming = three.endpoint(EndpointState.WARMING)
    xds.on_snapshot(snapshot(one.endpoint(), two.endpoint(), warming, generation=2))
    await envoy.until_health({one.port: "HEALTHY", two.port: "HEALTHY", three.port: "UNHEALTHY"})
    assert set(await envoy.ask(REQUESTS)) == {"pod-1", "pod-2"}

    xds.on_snapshot(snapshot(one.endpoint(), two.endpoint(), three.endpoint(), generation=3))
    await envoy.until_health({one.port: "HEALTHY", two.port: "HEALTHY", three.port: "HEALTHY"})
    assert set(await envoy.ask(REQUESTS)) == {"pod-1", "pod-2", "pod-3"}

    draining = (one.endpoint(EndpointState.DRAINING), two.endpoint(EndpointState.DRAINING))
    xds.on_snapshot(snapshot(*draining, three.endpoint(), generation=4))
    await envoy.until_health({one.port: "DRAINING", two.port: "DRAINING", three.port: "HEALTHY"})
    assert set(await envoy.ask(REQUESTS)) == {"pod-3"}, "less than half are ready, and it does not panic"

    xds.on_snapshot(snapshot(two.endpoint(), generation=5))
    await envoy.until_health({two.port: "HEALTHY"})
    assert set(await envoy.ask(REQUESTS)) == {"pod-2"}
    assert await envoy.stat("cluster.gec-en.update_rejected") == 0


async def test_rpc_passes_an_envoy_to_pods_that_are_ready(xds: XdsServer, tmp_path: Path) -> None:
    ready, draining = await FakePod("ready").start(), await FakePod("draining").start()
    xds.on_snapshot(snapshot(draining.endpoint(EndpointState.DRAINING), ready.endpoint()))

    def by_tcp(config: dict[str, Any]) -> None:
        (chain,) = config["static_resources"]["listeners"][0]["filter_chains"]
        chain["filters"] = [printed("name: envoy.filters.network.tcp_proxy")]

    async with running_envoy(tmp_path, xds.port, alter=by_tcp) as envoy:
        await envoy.until_health({ready.port: "HEALTHY", draining.port: "DRAINING"})
        for number in range(6):
            channel = await Channel.open(TcpAddress("127.0.0.1", envoy.port), name="test")
            sentence = msgspec.msgpack.encode(CorrectSentence(f"He go {number} ."))
            response = await channel.call(sentence, deadline_ms=5000)
            assert response.status is Status.OK
            await channel.close()
    assert len(ready.received) == 6
    assert draining.received == []
    await ready.stop()
    await draining.stop()


async def test_envoy_shows_its_token_and_its_certificate(pods: list[NamedServer], tmp_path: Path) -> None:
    key, certificate = self_signed()
    for name, content in (("client.key", key), ("client.pem", certificate), ("ca.pem", certificate)):
        (tmp_path / name).write_bytes(content)
    tls = Tls(certificate=certificate, key=key, client_ca=certificate)
    registry = CollectorRegistry()
    server = XdsServer("127.0.0.1", 0, Terms(slow_start=0.0, token="TOKEN", tls=tls), XdsMetrics(registry))
    await server.start()
    server.on_snapshot(snapshot(pods[0].endpoint()))

    def identified(config: dict[str, Any]) -> None:
        (service,) = config["dynamic_resources"]["ads_config"]["grpc_services"]
        service |= printed("initial_metadata: ")
        config["static_resources"]["clusters"][1] |= printed("transport_socket:", directory=tmp_path)

    async with running_envoy(tmp_path, server.port, alter=identified) as envoy:
        await envoy.until_health({pods[0].port: "HEALTHY"})
        assert await envoy.ask(3) == {"pod-1": 3}
    assert not registry.get_sample_value("copydesk_eds_xds_streams_refused_total", {"reason": "unauthenticated"})
    await server.close()
