"""Two nodes and a registry, each in a network of its own: what one node has, the other needs no registry for."""

from __future__ import annotations

import asyncio
import hashlib
import random
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from copydesk.imagefetcher.registry.options import RegistryOptions
from tests.fixtures.docker_registry import DockerRegistry, required_program
from tests.fixtures.image_daemon import running_holder, wait_until
from tests.fixtures.nats import free_port, nats_binary
from tests.fixtures.net_nodes import NetNodes, net_nodes
from tests.fixtures.oci_image import build, file, layer, push
from tests.fixtures.real_daemon import RealDaemon, convert

CONTENT = random.Random(5).randbytes(9 << 20)
TOKEN = "a token that all nodes share"


class FarRegistry(DockerRegistry):
    """A registry at an address of its own, in the network of a node."""

    def __init__(self, folder: Path, address: str, there: tuple[str, ...]) -> None:
        super().__init__(required_program("docker-registry", "docker-registry"), folder)
        self.host = f"{address}:{self.port}"
        self._there = there

    @contextmanager
    def run(self) -> Iterator[None]:
        """Serve for as long as somebody uses it."""
        config = self.storage.parent / "config.json"
        config.parent.mkdir()
        config.write_text(self.configuration())
        process = subprocess.Popen(
            [*self._there, "docker-registry", "serve", str(config)], stderr=subprocess.DEVNULL
        )
        try:
            address, _, port = self.host.partition(":")
            wait_until(lambda: _listens(address, int(port)))
            yield
        finally:
            process.kill()
            process.wait()


def _listens(address: str, port: int) -> bool:
    with closing(socket.socket()) as probe:
        probe.settimeout(0.5)
        return probe.connect_ex((address, port)) == 0


@contextmanager
def nats_at(address: str) -> Iterator[str]:
    binary = nats_binary() or required_program("nats-server", "nats-server")
    port = free_port()
    process = subprocess.Popen([binary, "-a", address, "-p", str(port), "-l", "/dev/null"])
    try:
        wait_until(lambda: _listens(address, port))
        yield f"nats://{address}:{port}"
    finally:
        process.terminate()
        process.wait()


def node(folder: Path, network: NetNodes, registry: str, nats: str, name: str) -> RealDaemon:
    address, there = network.add()
    more: dict[str, Any] = {
        "PLAIN_HTTP_REGISTRIES": registry,
        "NATS_URL": nats,
        "PEER_TOKEN": TOKEN,
        "PEER_HOST": address,
        "PEER_PORT": "7070",
        "NODE": name,
        "DOCKER_CONFIG": str(folder),
    }
    (folder / name).mkdir()
    return RealDaemon(folder / name, there, **more)


def fetched(daemon: RealDaemon, source: str) -> float:
    name = f'copydesk_imagefetcher_fetched_bytes_total{{source="{source}"}} '
    return next(float(line.removeprefix(name)) for line in daemon.client.metrics().splitlines() if name in line)


def test_the_second_node_fetches_from_the_first_when_the_registry_is_cut_off(node_folder: Path) -> None:
    expected = hashlib.sha256(CONTENT).hexdigest()
    with net_nodes() as network, ExitStack() as stack:
        address, there = network.add()
        registry = FarRegistry(node_folder / "registry", address, there)
        stack.enter_context(registry.run())
        nats = stack.enter_context(nats_at(network.bridge))
        push(registry.host, "app", "v1", build([layer(file("large.bin", CONTENT))]))
        options = RegistryOptions(plain_http_hosts=frozenset([registry.host]))
        asyncio.run(convert(registry.reference("app:v1"), options))
        first, second = (node(node_folder, network, registry.host, nats, name) for name in ("first", "second"))
        for daemon in (first, second):
            stack.enter_context(running_holder(daemon.folder))
            daemon.start()
            stack.callback(daemon.stop)
            daemon.client.mount(registry.reference("app:v1"), daemon.folder / "mnt")
            stack.callback(daemon.client.unmount, daemon.folder / "mnt")
        assert hashlib.sha256((first.folder / "mnt" / "large.bin").read_bytes()).hexdigest() == expected
        wait_until(
            lambda: second.client.status().images[0].peer_sectors == second.client.status().images[0].sectors
        )
        network.cut(address)
        assert not _listens(*_split(registry.host))
        assert hashlib.sha256((second.folder / "mnt" / "large.bin").read_bytes()).hexdigest() == expected
        assert fetched(second, "peer") >= len(CONTENT)
        assert fetched(second, "registry") == 0
        assert fetched(first, "peer") == 0


def _split(host: str) -> tuple[str, int]:
    address, _, port = host.partition(":")
    return address, int(port)
