"""What becomes of a node's files: lost, damaged, wanted by two, looked at by others. Readers must not feel it."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from copydesk.imagefetcher.control.client import DaemonError
from copydesk.imagefetcher.daemon import StateInUseError
from copydesk.imagefetcher.paths import control_socket, holder_socket
from tests.fixtures.blob_server import BlobServer, BlobUpstream
from tests.fixtures.image_daemon import DaemonProcess, running_daemon, running_holder, settings_in, wait_until
from tests.fixtures.lazy_image import erofs_image


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("loss", ["damaged", "gone", "torn"])
def test_readers_outlive_the_ledger_and_get_no_other_images_bytes(
    node_folder: Path, server: BlobServer, upstream: BlobUpstream, tree: Path, reference: str, loss: str
) -> None:
    other = node_folder / "other"
    other.mkdir()
    upstream.add("registry.test/other:v1", erofs_image(other, seed=7))
    daemon = DaemonProcess(node_folder, server, upstream)
    ledger = node_folder / "state" / "ledger.sqlite"
    with running_holder(node_folder):
        try:
            daemon.start()
            daemon.client.mount(reference, node_folder / "mnt")
            daemon.kill()
            if loss == "torn":
                os.truncate(ledger, 5000)
            elif loss == "damaged":
                ledger.write_bytes(os.urandom(20_000))
            else:
                ledger.unlink()
            daemon.start()
            daemon.client.mount("registry.test/other:v1", node_folder / "second")
            assert sha256(node_folder / "mnt" / "large.bin") == sha256(tree / "large.bin")
            assert sha256(node_folder / "second" / "large.bin") == sha256(other / "tree-7" / "large.bin")
            daemon.client.mount(reference, node_folder / "mnt")
            assert sha256(node_folder / "mnt" / "large.bin") == sha256(tree / "large.bin")
        finally:
            daemon.stop()


def test_a_cache_that_is_removed_under_live_mounts_is_filled_anew(
    node_folder: Path, upstream: BlobUpstream, tree: Path, reference: str
) -> None:
    sectors = node_folder / "state" / "sectors"
    with running_daemon(settings_in(node_folder), upstream) as client:
        client.mount(reference, node_folder / "mnt")
        large = node_folder / "mnt" / "large.bin"
        with large.open("rb", buffering=0) as file:
            head = file.read(1 << 20)
            wait_until(lambda: client.status().fetching == 0)
            shutil.rmtree(sectors)
            assert head + file.read() == (tree / "large.bin").read_bytes()
        assert len(list(sectors.glob("??/*"))) > 0
        assert client.status().cache.refused == 0
        client.unmount(node_folder / "mnt")


def test_a_cached_file_that_has_grown_beyond_all_bounds_is_not_read(
    node_folder: Path, upstream: BlobUpstream, tree: Path, reference: str
) -> None:
    with running_daemon(settings_in(node_folder), upstream) as client:
        client.mount(reference, node_folder / "mnt")
        sha256(node_folder / "mnt" / "large.bin")
        for sector in (node_folder / "state" / "sectors").glob("??/*"):
            os.truncate(sector, 1 << 42)
        client.unmount(node_folder / "mnt")
        client.mount(reference, node_folder / "mnt")
        assert sha256(node_folder / "mnt" / "large.bin") == sha256(tree / "large.bin")
        assert client.status().cache.corrupt > 0
        client.unmount(node_folder / "mnt")


def test_two_daemons_share_neither_folder(node_folder: Path, upstream: BlobUpstream) -> None:
    settings = settings_in(node_folder)
    with running_daemon(settings, upstream) as client:
        for shared in ("state_dir", "run_dir"):
            mine = settings_in(node_folder / "more", **{shared: getattr(settings, shared)})
            with pytest.raises(StateInUseError), running_daemon(mine, upstream):
                pass
        assert client.ready()


def test_a_second_holder_leaves_the_first_in_its_place(tmp_path: Path) -> None:
    with running_holder(tmp_path) as first:
        again = {**os.environ, "COPYDESK_IMAGEFETCHER_RUN_DIR": str(tmp_path / "run")}
        command = [sys.executable, "-m", "copydesk.imagefetcher.holder"]
        second = subprocess.run(command, env=again, capture_output=True, timeout=20, check=False)
        assert second.returncode == 2
        assert b"another holder" in second.stderr
        assert first.poll() is None
        assert holder_socket(tmp_path / "run").exists()


def _as_nobody(*command: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command, user=65534, group=65534, extra_groups=[], capture_output=True, check=False)


def test_others_than_root_reach_neither_images_nor_sockets(
    node_folder: Path, upstream: BlobUpstream, reference: str
) -> None:
    for folder in (node_folder, *node_folder.parents):
        if not folder.stat().st_mode & stat.S_IXOTH:
            folder.chmod(0o755)
    with running_daemon(settings_in(node_folder), upstream) as client:
        client.mount(reference, node_folder / "mnt")
        shown = next((node_folder / "run" / "devices").iterdir())
        with pytest.raises(OSError, match="not supported"):
            os.getxattr(shown, "user.x")
        for path in (shown, *(node_folder / "state" / name for name in ("sectors", "images", "snapshots"))):
            assert _as_nobody("ls", str(path.parent if path == shown else path)).returncode != 0
            assert _as_nobody("cat", str(path)).returncode != 0
        for path in (control_socket(node_folder / "run"), node_folder / "run" / "lock"):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
        # What is mounted for everybody, everybody may read, although the device is root's.
        assert _as_nobody("cat", str(node_folder / "mnt" / "large.bin")).returncode == 0
        client.unmount(node_folder / "mnt")


def test_impossible_targets_are_refused_one_by_one(
    node_folder: Path, upstream: BlobUpstream, reference: str
) -> None:
    with running_daemon(settings_in(node_folder), upstream) as client:
        for target in ("relative", "/a/../b", str(node_folder / "nul\0"), str(node_folder / ("n" * 300))):
            with pytest.raises(DaemonError) as caught:
                client.mount(reference, Path(target))
            assert caught.value.status == 409
        assert client.ready()


def test_who_still_reads_what_was_unmounted_is_not_forgotten(
    node_folder: Path, upstream: BlobUpstream, tree: Path, reference: str
) -> None:
    with running_daemon(settings_in(node_folder), upstream) as client:
        client.mount(reference, node_folder / "mnt")
        with (node_folder / "mnt" / "large.bin").open("rb", buffering=0) as file:
            head = file.read(4096)
            client.unmount(node_folder / "mnt", detach=True)
            assert client.clear_cache().forgotten == 0
            assert head + file.read() == (tree / "large.bin").read_bytes()
        wait_until(lambda: client.clear_cache().forgotten == 1)


def test_after_daemon_and_holder_were_killed_together_images_are_mounted_again(
    node_folder: Path, server: BlobServer, upstream: BlobUpstream, tree: Path, reference: str
) -> None:
    daemon = DaemonProcess(node_folder, server, upstream)
    try:
        with running_holder(node_folder) as holder:
            daemon.start()
            daemon.client.mount(reference, node_folder / "mnt")
            reader = (node_folder / "mnt" / "large.bin").open("rb", buffering=0)
            server.gate.clear()
            holder.kill()
            daemon.kill()
            with reader, pytest.raises(OSError, match="Input/output error"):
                reader.read(4096)
            server.gate.set()
        with running_holder(node_folder):
            daemon.start()
            status = daemon.client.status()
            assert (status.resumed, status.holder, status.broken) == (False, True, {})
            assert sha256(node_folder / "mnt" / "large.bin") == sha256(tree / "large.bin")
            daemon.client.unmount(node_folder / "mnt")
    finally:
        server.gate.set()
        daemon.stop()


def test_a_daemon_that_is_stopped_for_a_while_goes_on(
    node_folder: Path, server: BlobServer, upstream: BlobUpstream, tree: Path, reference: str
) -> None:
    daemon = DaemonProcess(node_folder, server, upstream)
    with running_holder(node_folder) as holder:
        try:
            daemon.start()
            daemon.client.mount(reference, node_folder / "mnt")
            for process in (daemon.pid, holder.pid):
                os.kill(process, signal.SIGSTOP)
            with ThreadPoolExecutor(1) as pool:
                reader = pool.submit(sha256, node_folder / "mnt" / "large.bin")
                with pytest.raises(TimeoutError):
                    reader.result(0.2)
                for process in (holder.pid, daemon.pid):
                    os.kill(process, signal.SIGCONT)
                assert reader.result(30) == sha256(tree / "large.bin")
            daemon.client.unmount(node_folder / "mnt")
        finally:
            os.kill(holder.pid, signal.SIGCONT)
            daemon.stop()
