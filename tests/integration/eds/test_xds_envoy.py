"""A real Envoy, started with the bootstrap of docs/xds.md, follows what discovery serves, and outlives it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from copydesk.common.messages import Endpoint, EndpointsSnapshot, EndpointState
from copydesk.eds.xds.metrics import XdsMetrics
from copydesk.eds.xds.server import XdsServer
from copydesk.eds.xds.terms import Terms
from tests.fixtures.envoy import Envoy, NamedServer, running_envoy

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

    draining = one.endpoint(EndpointState.DRAINING)
    xds.on_snapshot(snapshot(draining, two.endpoint(), three.endpoint(), generation=4))
    await envoy.until_health({one.port: "DRAINING", two.port: "HEALTHY", three.port: "HEALTHY"})
    assert set(await envoy.ask(REQUESTS)) == {"pod-2", "pod-3"}

    xds.on_snapshot(snapshot(two.endpoint(), generation=5))
    await envoy.until_health({two.port: "HEALTHY"})
    assert set(await envoy.ask(REQUESTS)) == {"pod-2"}
    assert await envoy.stat("cluster.gec-en.update_rejected") == 0
