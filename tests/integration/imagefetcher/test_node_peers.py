"""Two nodes: what one has, the other takes from it, checked, and only with the shared token."""

from __future__ import annotations

import hashlib
import http.client
from pathlib import Path

from copydesk.imagefetcher.peers.proof import HEADER, PREFIX, proof
from tests.fixtures.blob_server import BlobServer, BlobUpstream
from tests.fixtures.image_daemon import running_daemon, settings_in, wait_until
from tests.fixtures.nats import NatsServer, free_port

TOKEN = "a token that all nodes share"


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def peer_settings(nats: NatsServer, node: str) -> dict[str, object]:
    return {"nats_url": nats.url, "peer_token": TOKEN, "peer_port": free_port(), "node": node}


def test_the_second_node_fetches_from_the_first_and_not_from_the_registry(
    node_folder: Path,
    server: BlobServer,
    upstream: BlobUpstream,
    tree: Path,
    reference: str,
    nats_server: NatsServer,
) -> None:
    first, second = node_folder / "a", node_folder / "b"
    with running_daemon(settings_in(first, **peer_settings(nats_server, "a")), upstream) as one:
        one.mount(reference, first / "mnt")
        assert sha256(first / "mnt" / "large.bin") == sha256(tree / "large.bin")
        one.prefetch(reference, everything=True)
        wait_until(lambda: one.status().images[0].held_sectors == one.status().images[0].sectors)
        fetched = dict(server.requests)
        with running_daemon(settings_in(second, **peer_settings(nats_server, "b")), upstream) as two:
            two.mount(reference, second / "mnt")
            wait_until(lambda: two.status().images[0].peer_sectors == one.status().images[0].held_sectors)
            assert sha256(second / "mnt" / "large.bin") == sha256(tree / "large.bin")
            sectors = {span: count for span, count in server.requests.items() if span in fetched and span[0] > 0}
            assert set(sectors.values()) == {1}
            assert 'copydesk_imagefetcher_fetched_bytes_total{source="registry"} 0.0' in two.metrics()
            assert "copydesk_imagefetcher_peer_served_bytes_total 0.0" not in one.metrics()


def test_a_node_whose_peer_is_gone_goes_to_the_registry(
    node_folder: Path, upstream: BlobUpstream, tree: Path, reference: str, nats_server: NatsServer
) -> None:
    first, second = node_folder / "a", node_folder / "b"
    with running_daemon(settings_in(second, **peer_settings(nats_server, "b")), upstream) as two:
        two.mount(reference, second / "mnt")
        with running_daemon(settings_in(first, **peer_settings(nats_server, "a")), upstream) as one:
            one.mount(reference, first / "mnt")
            sha256(first / "mnt" / "large.bin")
            wait_until(lambda: two.status().images[0].peers == 1)
        assert sha256(second / "mnt" / "large.bin") == sha256(tree / "large.bin")


def test_a_peer_without_the_token_gets_nothing(
    node_folder: Path, upstream: BlobUpstream, reference: str, nats_server: NatsServer
) -> None:
    chosen = peer_settings(nats_server, "a")
    with running_daemon(settings_in(node_folder, **chosen), upstream) as client:
        client.mount(reference, node_folder / "mnt")
        sha256(node_folder / "mnt" / "large.bin")
        held = next((node_folder / "state" / "sectors").glob("??/*"))
        path = PREFIX + held.name
        for value, status in ((proof("another token", path), 401), ("", 401), (proof(TOKEN, path), 200)):
            connection = http.client.HTTPConnection("127.0.0.1", int(str(chosen["peer_port"])), timeout=10)
            connection.request("GET", path, headers={HEADER: value, "Accept-Encoding": "identity"})
            response = connection.getresponse()
            assert response.status == status
            assert (response.read() == held.read_bytes()) is (status == 200)
            connection.close()
