"""The gateway as a process under TLS: certificates to pods and to NATS, and nothing that goes around it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import pytest

from copydesk.common.bus import Bus
from copydesk.common.tls import client_tls
from tests.fixtures.fleet_certificates import (
    NATS_NAME,
    make_certificates,
    pod_server,
    renew_certificates,
    tls_files,
    variables,
)
from tests.fixtures.nats import NatsServer, running_binary
from tests.fixtures.text_pod import TextPod
from tests.integration.gateway.conftest import Discovery, Site, eventually

TEXT = {"prompt": "Once upon a time"}


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    return make_certificates(tmp_path / "fleet")


@pytest.fixture
def nats(tmp_path: Path, fleet: Path) -> Iterator[NatsServer]:
    own = fleet / "nats"
    files = f'cert_file: "{own}/tls.crt", key_file: "{own}/tls.key", ca_file: "{own}/ca.crt"'
    with running_binary(tmp_path, configuration=f"tls {{ {files}, verify: true }}") as running:
        yield running


@pytest.fixture
async def discovery(nats: NatsServer, fleet: Path) -> AsyncIterator[Discovery]:
    tls = client_tls(tls_files(fleet, "eds", "nats"), NATS_NAME)
    discovery = Discovery(await Bus.connect(nats.url, name="test", tls=tls))
    yield discovery
    await discovery.close()


@pytest.fixture
async def pods(fleet: Path) -> AsyncIterator[tuple[TextPod, TextPod]]:
    """One under TLS, one that is not."""
    async with AsyncExitStack() as stack:
        found = TextPod("secure"), TextPod("plain")
        found[0].tls = pod_server(fleet)
        for pod in found:
            await pod.start()
            stack.push_async_callback(pod.stop)
        yield found


def settings(fleet: Path, nats: NatsServer) -> dict[str, object]:
    return {"nats_url": nats.url, **variables(fleet, "gateway", "", "RPC", "NATS")}


async def is_ready(client: httpx.AsyncClient) -> bool:
    return (await client.get("/readyz")).status_code == 200


async def carried(client: httpx.AsyncClient) -> int:
    """How many requests the compiled lane has brought to their end."""
    lines = (await client.get("/metrics")).text.splitlines()
    found = [line for line in lines if line.startswith('copydesk_gateway_lane_requests_total{ending="answered"}')]
    return int(float(found[0].rpartition(" ")[2]))


async def test_requests_reach_pods_under_tls_alone_by_the_lane_too_and_over_a_renewal(
    site: Site, nats: NatsServer, fleet: Path, discovery: Discovery, pods: tuple[TextPod, TextPod]
) -> None:
    secure, plain = pods
    discovery.announce(secure.endpoint(), plain.endpoint())
    gateway = await site.unstarted(**settings(fleet, nats), core="compiled").start()
    client = await site.client(gateway)
    await eventually(lambda: is_ready(client))

    async def by_lane() -> bool:
        answer = await client.post("/v1/completions", json=TEXT, headers={"X-Request-Id": "a"})
        assert answer.json()["choices"][0]["text"] == TEXT["prompt"]
        return await carried(client) >= 2

    await eventually(by_lane)
    assert plain.received == []
    metrics = (await client.get("/metrics")).text
    for link in ("rpc", "nats"):
        name = "copydesk_gateway_tls_certificate_expiry_timestamp_seconds"
        assert f'{name}{{link="{link}",part="certificate"}} 1' in metrics

    renew_certificates(fleet)
    port = secure.port
    await secure.stop()
    await secure.start(port)

    async def answers() -> bool:
        return (await client.post("/v1/completions", json=TEXT)).status_code == 200

    await eventually(answers)
    assert plain.received == []


async def test_a_file_that_cannot_be_used_ends_the_start_with_its_name(site: Site, fleet: Path) -> None:
    key = fleet / "gateway" / "tls.key"
    key.write_text("")
    gateway = site.unstarted(**variables(fleet, "gateway", "", "RPC"))
    await gateway.spawn()
    assert await gateway.ended() == 2
    problem = f"COPYDESK_GATEWAY_RPC_TLS_KEY_FILE: {key}: expected a private key in PEM, and there is none\n"
    assert gateway.log() == problem
