"""Readers that are killed while they wait for a sector: they must go at once, whatever the registry does."""

from __future__ import annotations

import hashlib
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.fixtures.blob_server import BlobServer, BlobUpstream
from tests.fixtures.image_daemon import DaemonProcess, running_holder, wait_until

_READ = "import sys; open(sys.argv[1], 'rb', buffering=0).read(65536)"
_MAP = "import mmap, sys; f = open(sys.argv[1], 'rb'); mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)[-1]"

_SIGNALLED = """
import signal, sys
signal.signal(signal.SIGALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
length = len(open(sys.argv[1], 'rb', buffering=0).read(65536))
signal.setitimer(signal.ITIMER_REAL, 0)  # at its end Python takes the handler away
sys.exit(length != 65536)
"""


def _reader(path: Path, program: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", program, str(path)])


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_killed_reader_goes_while_its_sector_does_not_come(
    node_folder: Path, server: BlobServer, upstream: BlobUpstream, tree: Path, reference: str
) -> None:
    daemon = DaemonProcess(node_folder, server, upstream)
    large = node_folder / "mnt" / "large.bin"
    with running_holder(node_folder), ThreadPoolExecutor(1) as pool:
        try:
            daemon.start()
            daemon.client.mount(reference, node_folder / "mnt")
            server.gate.clear()
            killed = [_reader(large, _READ), _reader(large, _MAP)]
            staying = pool.submit(_digest, large)
            wait_until(lambda: daemon.client.status().fetching >= 2)
            for reader in killed:
                reader.kill()
                assert reader.wait(5) == -signal.SIGKILL
            server.gate.set()
            assert staying.result(30) == _digest(tree / "large.bin")
            daemon.client.unmount(node_folder / "mnt")
        finally:
            server.gate.set()
            daemon.stop()


def test_readers_killed_while_the_daemon_is_away_go_with_the_next_one_at_the_latest(
    node_folder: Path, server: BlobServer, upstream: BlobUpstream, tree: Path, reference: str
) -> None:
    daemon = DaemonProcess(node_folder, server, upstream)
    large = node_folder / "mnt" / "large.bin"
    with running_holder(node_folder):
        try:
            daemon.start()
            daemon.client.mount(reference, node_folder / "mnt")
            server.gate.clear()
            before = _reader(large, _READ)
            assert server.asked.wait(10)
            daemon.kill()
            after = _reader(large, _MAP)
            before.kill()
            after.kill()
            daemon.start()
            assert (before.wait(5), after.wait(5)) == (-signal.SIGKILL, -signal.SIGKILL)
            server.gate.set()
            assert _digest(large) == _digest(tree / "large.bin")
            daemon.client.unmount(node_folder / "mnt")
        finally:
            server.gate.set()
            daemon.stop()


def test_a_reader_that_handles_signals_while_it_waits_gets_what_it_reads(
    node_folder: Path, server: BlobServer, upstream: BlobUpstream, reference: str
) -> None:
    daemon = DaemonProcess(node_folder, server, upstream)
    try:
        daemon.start()
        daemon.client.mount(reference, node_folder / "mnt")
        server.gate.clear()
        reader = _reader(node_folder / "mnt" / "large.bin", _SIGNALLED)
        status = Path(f"/proc/{reader.pid}/status")
        wait_until(lambda: reader.poll() is not None or _is_pending(status, signal.SIGALRM))
        server.gate.set()
        assert reader.wait(10) == 0
        daemon.client.unmount(node_folder / "mnt")
    finally:
        server.gate.set()
        daemon.stop()


def _is_pending(status: Path, number: int) -> bool:
    """Whether a signal waits until the process, stuck in the kernel, can take it."""
    (line,) = [line for line in status.read_text().splitlines() if line.startswith("ShdPnd:")]
    return bool(int(line.split()[1], 16) >> (number - 1) & 1)
