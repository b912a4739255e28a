"""What goes wrong with the cache on disk: corrupt files, no room, and a daemon that was killed."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from copydesk.imagefetcher.control.client import DaemonError
from copydesk.imagefetcher.device.mounts import mounted_at, unmount
from tests.fixtures.blob_server import BlobServer, BlobUpstream
from tests.fixtures.image_daemon import running_daemon, settings_in


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def cached(folder: Path) -> list[Path]:
    return sorted((folder / "state" / "sectors").glob("??/*"))


def forget_pages() -> None:
    """Have the next read come from the device again."""
    Path("/proc/sys/vm/drop_caches").write_text("1")


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


@pytest.fixture
def small_disk(node_folder: Path) -> Iterator[Path]:
    """A file system of 3 MiB for all that a node keeps."""
    folder = node_folder / "state"
    folder.mkdir()
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mount(b"tmpfs", bytes(folder), b"tmpfs", 0, b"size=3m") == 0
    yield folder
    unmount(folder, detach=True)


@pytest.mark.parametrize("damage", ["flipped", "cut short", "empty"])
def test_what_was_damaged_between_two_runs_is_fetched_again_once(
    node_folder: Path, server: BlobServer, upstream: BlobUpstream, tree: Path, reference: str, damage: str
) -> None:
    with running_daemon(settings_in(node_folder), upstream) as client:
        client.mount(reference, node_folder / "mnt")
        assert sha256(node_folder / "mnt" / "large.bin") == sha256(tree / "large.bin")
    for path in cached(node_folder)[:2]:
        content = path.read_bytes()
        path.write_bytes(
            {"flipped": content[:-1] + bytes([content[-1] ^ 1]), "cut short": content[:-1]}.get(damage, b"")
        )
    server.requests.clear()
    forget_pages()
    with running_daemon(settings_in(node_folder), upstream) as client:
        assert sha256(node_folder / "mnt" / "large.bin") == sha256(tree / "large.bin")
        assert client.status().cache.corrupt == 2
        assert sum(server.requests.values()) == 2
        forget_pages()
        assert sha256(node_folder / "mnt" / "large.bin") == sha256(tree / "large.bin")
        assert sum(server.requests.values()) == 2


def test_what_is_damaged_while_the_daemon_runs_is_noticed_too(
    node_folder: Path, upstream: BlobUpstream, tree: Path, reference: str
) -> None:
    with running_daemon(settings_in(node_folder), upstream) as client:
        client.mount(reference, node_folder / "mnt")
        assert sha256(node_folder / "mnt" / "large.bin") == sha256(tree / "large.bin")
        for path in cached(node_folder):
            flip(path)
        forget_pages()
        assert sha256(node_folder / "mnt" / "large.bin") == sha256(tree / "large.bin")
        assert client.status().cache.corrupt > 0


def test_a_damaged_cache_without_a_registry_is_an_error_and_not_wrong_bytes(
    node_folder: Path, server: BlobServer, upstream: BlobUpstream, reference: str
) -> None:
    with running_daemon(settings_in(node_folder), upstream) as client:
        client.mount(reference, node_folder / "mnt")
        sha256(node_folder / "mnt" / "large.bin")
        for path in cached(node_folder):
            flip(path)
        server.down = True
        forget_pages()
        with pytest.raises(OSError, match="Input/output error"):
            sha256(node_folder / "mnt" / "large.bin")


def test_a_full_disk_is_served_without_being_cached(
    node_folder: Path, small_disk: Path, server: BlobServer, upstream: BlobUpstream, tree: Path, reference: str
) -> None:
    with running_daemon(settings_in(node_folder), upstream) as client:
        client.mount(reference, node_folder / "mnt")
        server.requests.clear()
        assert sha256(node_folder / "mnt" / "large.bin") == sha256(tree / "large.bin")
        cache = client.status().cache
        assert cache.refused > 0
        assert 0 < cache.size <= 3 << 20
        assert set(server.requests.values()) == {1}
        client.unmount(node_folder / "mnt")
        assert client.ready()


def test_a_full_disk_fails_a_mount_and_leaves_nothing_mounted(
    node_folder: Path, small_disk: Path, upstream: BlobUpstream, tree: Path, reference: str
) -> None:
    with running_daemon(settings_in(node_folder), upstream) as client:
        client.status()
        with pytest.raises(OSError, match="No space"):
            fill(small_disk / "filler")
        with pytest.raises(DaemonError):
            client.mount(reference, node_folder / "mnt")
        assert mounted_at(node_folder / "mnt") is None
        (small_disk / "filler").unlink()
        client.mount(reference, node_folder / "mnt")
        assert sha256(node_folder / "mnt" / "small-1.txt") == sha256(tree / "small-1.txt")
        client.unmount(node_folder / "mnt")
        assert client.ready()
