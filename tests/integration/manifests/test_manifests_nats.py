"""Three real nodes of NATS, started with the command and the configuration of the StatefulSet."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import urllib.request
from collections.abc import AsyncIterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.errors import Error as NatsError

from copydesk.common.tls import client_context
from tests.fixtures.container_commands import ContainerFiles
from tests.fixtures.fleet_certificates import NATS_NAME, make_certificates, tls_files
from tests.fixtures.manifests import workload
from tests.fixtures.nats import free_port, nats_binary
from tests.fixtures.until import until

TOKEN = "81546890731"
"""Of digits alone, which a configuration of NATS would take for a number."""

NODES = 3


@dataclass(frozen=True)
class Node:
    """A node's ports: for clients, for other nodes, and for looking at it."""

    client: int
    routes: int
    monitor: int

    def arguments(self, others: list[Node]) -> str:
        """What the nodes of one machine cannot have alike: each would listen on the same ports."""
        urls = ",".join(f"nats://localhost:{other.routes}" for other in others)
        ports = f"--addr 127.0.0.1 --port {self.client} --http_port {self.monitor}"
        return f"{ports} --cluster nats://127.0.0.1:{self.routes} --routes {urls}"

    def neighbours(self) -> int:
        """How many nodes it is connected to."""
        with suppress(OSError):
            url = f"http://127.0.0.1:{self.monitor}/routez"
            with urllib.request.urlopen(url, timeout=5) as page:
                return len({route["remote_name"] for route in json.load(page)["routes"]})
        return 0

    def is_healthy(self) -> bool:
        """Whether the probes of the manifests find it well."""
        path = workload("h100", "nats").main["readinessProbe"]["httpGet"]["path"]
        with urllib.request.urlopen(f"http://127.0.0.1:{self.monitor}{path}", timeout=5) as page:
            return bool(page.status == 200)


@dataclass(frozen=True)
class Cluster:
    """The nodes, and the certificates of the fleet."""

    nodes: list[Node]
    certificates: Path

    def shown_by(self, component: str) -> ssl.SSLContext:
        """What a component connects with."""
        return client_context(tls_files(self.certificates, component, "nats"))

    async def connect(self, node: int, tls: ssl.SSLContext, token: str = TOKEN) -> Any:
        """Connect to a node, once."""
        return await nats.connect(
            f"tls://127.0.0.1:{self.nodes[node].client}",
            token=token,
            tls=tls,
            tls_hostname=NATS_NAME,
            allow_reconnect=False,
            connect_timeout=15,
            error_cb=_nothing,
        )


async def _nothing(_error: Exception) -> None:
    """It is raised as well."""


def _programs() -> Path:
    binary = nats_binary()
    if binary is None:
        if os.environ.get("COPYDESK_REQUIRE_ALL") == "1":
            pytest.fail("no nats-server binary")
        pytest.skip("no nats-server binary")
    return Path(binary).parent


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    """The three nodes, once each is connected to both others."""
    certificates = make_certificates(tmp_path / "certificates")
    own = {path.name: path.read_text() for path in (certificates / "nats").iterdir()}
    nodes = [Node(free_port(), free_port(), free_port()) for _ in range(NODES)]
    programs = _programs()
    with ExitStack() as stack:
        for index, node in enumerate(nodes):
            each = workload("h100", "nats")
            files = ContainerFiles(each, tmp_path / f"node-{index}", {**own, "token": f"{TOKEN}\n"})
            others = [other for other in nodes if other is not node]
            started = files.started(programs, node.arguments(others), POD_NAME=f"{each.name}-{index}")
            stack.enter_context(started)
        await until(lambda: all(node.neighbours() == NODES - 1 for node in nodes), timeout=60)
        yield Cluster(nodes, certificates)


async def test_what_is_said_at_one_node_is_heard_at_the_others(cluster: Cluster) -> None:
    gateway = await cluster.connect(0, cluster.shown_by("gateway"))
    pod = await cluster.connect(2, cluster.shown_by("inference"))
    heard = await gateway.subscribe("copydesk.v1.load.gec-en.*")
    await gateway.flush()
    # The other node learns of a subscription when it does: what is said before is lost, as a report may be.
    said: list[bytes] = []

    async def hear() -> None:
        async for message in heard.messages:
            said.append(message.data)

    hearing = asyncio.create_task(hear())
    async with asyncio.timeout(30):
        while not said:
            await pod.publish("copydesk.v1.load.gec-en.pod-1", b"{}")
            await pod.flush()
    hearing.cancel()
    assert said[0] == b"{}"
    assert all(node.is_healthy() for node in cluster.nodes)
    await gateway.close()
    await pod.close()


async def test_who_lacks_certificate_or_token_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    known = cluster.shown_by("eds")
    authority = tls_files(cluster.certificates, "eds").authority
    bare = ssl.create_default_context(cafile=authority)
    other = make_certificates(tmp_path / "other")
    stranger = client_context(tls_files(other, "eds"))
    stranger.load_verify_locations(authority)
    for tls, token in ((bare, TOKEN), (stranger, TOKEN), (known, "81546890732")):
        with pytest.raises((NatsError, OSError)):
            await cluster.connect(1, tls, token)
    client = await cluster.connect(1, known)
    await client.close()
