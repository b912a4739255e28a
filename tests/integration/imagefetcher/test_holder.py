"""The holder process, and what it is for: readers that survive the daemon."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from copydesk.imagefetcher.holder.client import HolderClient, HolderError
from copydesk.imagefetcher.paths import holder_socket
from tests.fixtures.blob_server import BlobServer, BlobUpstream
from tests.fixtures.image_daemon import DaemonProcess, running_holder, wait_until


@pytest.fixture
def socket_path(tmp_path: Path) -> Path:
    return holder_socket(tmp_path / "run")


def test_a_descriptor_comes_back_as_it_was_given(tmp_path: Path, socket_path: Path) -> None:
    with running_holder(tmp_path), (tmp_path / "file").open("w+") as file:
        giver = HolderClient(socket_path)
        giver.put("devices", file.fileno())
        giver.close()
        taker = HolderClient(socket_path)
        taken = taker.get("devices")
        assert taken is not None
        os.write(taken, b"through the copy")
        os.close(taken)
        assert (tmp_path / "file").read_text() == "through the copy"
        taker.drop("devices")
        assert taker.get("devices") is None
        taker.close()


def test_what_is_not_understood_is_refused_and_the_holder_lives_on(tmp_path: Path, socket_path: Path) -> None:
    with running_holder(tmp_path):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as raw:
            raw.connect(str(socket_path))
            for message in (b"{", b"[]", b'{"do": "fly"}', b'{"do": "put", "name": "x"}', b"\xff" * 4000):
                raw.send(message)
                assert b'"ok": false' in raw.recv(4096)
        client = HolderClient(socket_path)
        assert client.alive()
        client.close()


def test_without_a_holder_there_is_a_typed_error(socket_path: Path) -> None:
    with pytest.raises(HolderError) as caught:
        HolderClient(socket_path)
    assert caught.value.path == socket_path


def test_the_holder_needs_next_to_nothing(tmp_path: Path) -> None:
    with running_holder(tmp_path) as process:
        loaded = Path(f"/proc/{process.pid}/maps").read_text()
        status = Path(f"/proc/{process.pid}/status").read_text()
        resident = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
        assert "Threads:\t1\n" in status
        assert resident < 24_000
        assert "msgspec" not in loaded


def read_slowly(path: Path, first: int) -> str:
    """Hash a file by small reads; the kernel has to come back for more while the daemon is away."""
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        digest.update(file.read(first))
        while chunk := file.read(64 << 10):
            digest.update(chunk)
    return digest.hexdigest()


def test_a_reader_does_not_notice_that_the_daemon_is_killed_in_mid_read(
    node_folder: Path, server: BlobServer, upstream: BlobUpstream, tree: Path, reference: str
) -> None:
    expected = hashlib.sha256((tree / "large.bin").read_bytes()).hexdigest()
    daemon = DaemonProcess(node_folder, server, upstream)
    with running_holder(node_folder), ThreadPoolExecutor(4) as pool:
        try:
            daemon.start()
            daemon.client.mount(reference, node_folder / "mnt")
            server.asked.clear()
            server.gate.clear()
            readers = [pool.submit(read_slowly, node_folder / "mnt" / "large.bin", 4096) for _ in range(4)]
            assert server.asked.wait(10)
            daemon.kill()
            server.gate.set()
            assert not any(reader.done() for reader in readers)
            daemon.start()
            assert daemon.client.status().resumed
            assert {reader.result(30) for reader in readers} == {expected}
            assert daemon.client.status().images[0].mounts == (str(node_folder / "mnt"),)
            daemon.client.unmount(node_folder / "mnt")
        finally:
            server.gate.set()
            daemon.stop()


def test_an_upgrade_in_good_order_is_not_noticed_either(
    node_folder: Path, server: BlobServer, upstream: BlobUpstream, tree: Path, reference: str
) -> None:
    expected = hashlib.sha256((tree / "large.bin").read_bytes()).hexdigest()
    daemon = DaemonProcess(node_folder, server, upstream)
    with running_holder(node_folder), ThreadPoolExecutor(1) as pool:
        try:
            daemon.start()
            daemon.client.mount(reference, node_folder / "mnt")
            server.asked.clear()
            server.gate.clear()
            reader = pool.submit(read_slowly, node_folder / "mnt" / "large.bin", 4096)
            assert server.asked.wait(10)
            server.gate.set()
            assert daemon.stop() == 0
            daemon.start()
            assert reader.result(30) == expected
            daemon.client.unmount(node_folder / "mnt")
        finally:
            server.gate.set()
            daemon.stop()


def test_killed_at_any_moment_the_next_daemon_serves_from_the_same_cache(
    node_folder: Path, server: BlobServer, upstream: BlobUpstream, tree: Path, reference: str
) -> None:
    expected = hashlib.sha256((tree / "large.bin").read_bytes()).hexdigest()
    daemon = DaemonProcess(
        node_folder, server, upstream, background=True, background_mb_s=1000.0, background_delay_ms=0
    )
    with running_holder(node_folder):
        try:
            daemon.start()
            daemon.client.mount(reference, node_folder / "mnt")
            for _ in range(3):  # in the middle of fetching and writing
                daemon.kill()
                daemon.start()
            wait_until(lambda: daemon.client.status().images[0].held_sectors == 9)
            daemon.kill()
            server.down = True
            daemon.start()
            assert hashlib.sha256((node_folder / "mnt" / "large.bin").read_bytes()).hexdigest() == expected
            assert daemon.client.status().cache.corrupt == 0
            daemon.client.unmount(node_folder / "mnt")
        finally:
            daemon.stop()


def test_a_holder_that_is_replaced_is_given_the_descriptor_anew(
    node_folder: Path, server: BlobServer, upstream: BlobUpstream, reference: str
) -> None:
    daemon = DaemonProcess(node_folder, server, upstream)
    try:
        with running_holder(node_folder):
            daemon.start()
            daemon.client.mount(reference, node_folder / "mnt")
        with running_holder(node_folder):
            wait_until(lambda: _held(node_folder))
            daemon.kill()
            daemon.start()
            assert daemon.client.status().resumed
            daemon.client.unmount(node_folder / "mnt")
    finally:
        daemon.stop()


def _held(folder: Path) -> bool:
    client = HolderClient(holder_socket(folder / "run"))
    try:
        taken = client.get("devices")
        if taken is not None:
            os.close(taken)
        return taken is not None
    finally:
        client.close()


@pytest.mark.parametrize(("argument", "code"), [("--help", 0), ("--no-such", 2)])
def test_a_holder_that_is_asked_for_help_does_not_begin(tmp_path: Path, argument: str, code: int) -> None:
    command = [sys.executable, "-m", "copydesk.imagefetcher.holder", argument]
    environment = os.environ | {"COPYDESK_IMAGEFETCHER_RUN_DIR": str(tmp_path / "run")}
    asked = subprocess.run(command, capture_output=True, text=True, timeout=30, env=environment)
    assert asked.returncode == code
    assert not (tmp_path / "run").exists()
