"""The registry, containerd and the image fetcher's daemon as processes, each with its files in a folder."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import grpc

from bench.image.errors import BenchError
from bench.image.network import Link, call
from copydesk.imagefetcher.control.client import ControlClient
from copydesk.imagefetcher.paths import control_socket

PORT = 5000
START_S = 30.0
PULL_S = 1800.0

_REGISTRY = """version: 0.1
log: {{level: error, accesslog: {{disabled: true}}}}
storage: {{filesystem: {{rootdirectory: {folder}/storage}}, maintenance: {{uploadpurging: {{enabled: false}}}}}}
http: {{addr: "{address}:{port}"}}
"""
_CONTAINERD = """version = 2
root = "{folder}/root"
state = "{folder}/state"
disabled_plugins = [
  "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.aufs",
  "io.containerd.tracing.processor.v1.otlp",
]
[grpc]
  address = "{socket}"
[ttrpc]
  address = "{socket}.ttrpc"
{plugins}
[plugins."io.containerd.grpc.v1.cri"]
  stream_server_port = "0"
  [plugins."io.containerd.grpc.v1.cri".cni]
    conf_dir = "{folder}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "{snapshotter}"
    disable_snapshot_annotations = false
    # As many installations of Kubernetes have it: layers are not kept packed as well.
    discard_unpacked_layers = true
  [plugins."io.containerd.grpc.v1.cri".registry.mirrors."{host}"]
    endpoint = ["http://{host}"]
"""


@contextmanager
def registry(link: Link, folder: Path) -> Iterator[str]:
    """Run docker-registry in the link's namespace; yield its host and port."""
    folder.mkdir()
    config = folder / "config.yml"
    config.write_text(_REGISTRY.format(folder=folder, address=link.address, port=PORT))
    command = ["ip", "netns", "exec", link.namespace, "docker-registry", "serve", str(config)]
    with run_process(command, folder / "log", {"OTEL_TRACES_EXPORTER": "none"}):
        wait_until("docker-registry", folder / "log", lambda: _listens(link.address))
        yield f"{link.address}:{PORT}"


class Containerd:
    """A containerd; `snapshotter` is where its CRI puts images."""

    def __init__(self, socket: Path, snapshotter: str) -> None:
        self.snapshotter = snapshotter
        self.socket = socket

    def ready(self) -> bool:
        """Whether it serves images."""
        try:
            self._cri("ListImages", b"", 2.0)
        except grpc.RpcError:
            return False
        return True

    def pull(self, reference: str) -> None:
        """Pull an image the way a kubelet does."""
        try:
            self._cri("PullImage", _field(1, _field(1, reference.encode())), PULL_S)
        except grpc.RpcError as error:
            raise BenchError("containerd", str(error)) from error

    def remove(self, reference: str) -> None:
        """Remove an image the way a kubelet does, under all its names, and everything that only it needs."""
        try:
            self._cri("RemoveImage", _field(1, _field(1, reference.encode())), 120.0)
        except grpc.RpcError as error:
            raise BenchError("containerd", str(error)) from error

    def command(self, *arguments: str) -> list[str]:
        """A call of containerd's command."""
        return ["ctr", "--address", str(self.socket), "--namespace", "k8s.io", *arguments]

    def ctr(self, *arguments: str) -> str:
        """Call containerd's command."""
        return call(*self.command(*arguments), timeout=120.0)

    def _cri(self, method: str, request: bytes, timeout: float) -> bytes:
        """Call the CRI's image service, whose messages are simple enough to be written out."""
        with grpc.insecure_channel(f"unix:{self.socket}") as channel:
            ask: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
                f"/runtime.v1.ImageService/{method}"
            )
            answer: bytes = ask(request, timeout=timeout)
            return answer


@contextmanager
def containerd(
    host: str,
    folder: Path,
    socket: Path,
    snapshotter: str = "overlayfs",
    plugins: Mapping[str, Path] | None = None,
) -> Iterator[Containerd]:
    """Run containerd, which pulls from `host` without TLS, and whose CRI uses `snapshotter`.

    `plugins` are snapshotters in processes of their own, with their sockets.
    """
    folder.mkdir()
    config = folder / "config.toml"
    config.write_text(
        _CONTAINERD.format(
            folder=folder, socket=socket, host=host, snapshotter=snapshotter, plugins=_proxies(plugins or {})
        )
    )
    with run_process(["containerd", "--config", str(config)], folder / "log"):
        own = Containerd(socket, snapshotter)
        wait_until("containerd", folder / "log", own.ready)
        yield own


def _proxies(plugins: Mapping[str, Path]) -> str:
    return "\n".join(
        f'[proxy_plugins.{name}]\n  type = "snapshot"\n  address = "{path}"' for name, path in plugins.items()
    )


@contextmanager
def daemon(host: str, folder: Path, run: Path) -> Iterator[ControlClient]:
    """Run the image fetcher's daemon with its sockets in `run`; it completes nothing in the background."""
    folder.mkdir()
    settings = {
        "STATE_DIR": str(folder / "state"),
        "RUN_DIR": str(run),
        "PLAIN_HTTP_REGISTRIES": host,
        "BACKGROUND": "false",
        "SNAPSHOTTER": "true",
        "LOG_LEVEL": "warning",
    }
    environment = {f"COPYDESK_IMAGEFETCHER_{name}": value for name, value in settings.items()}
    client = ControlClient(control_socket(run), timeout=300.0)
    with run_process([sys.executable, "-m", "copydesk.imagefetcher"], folder / "log", environment):
        wait_until("image fetcher", folder / "log", client.ready)
        yield client


@contextmanager
def run_process(command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> Iterator[None]:
    """Run a command with its output in `log`, and end it."""
    with log.open("ab") as output:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )
        except OSError as error:
            raise BenchError(command[0], str(error)) from error
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_until(name: str, log: Path, condition: Callable[[], bool]) -> None:
    """Return once the condition holds; raise BenchError, with the log's end, if it does not in time."""
    deadline = time.monotonic() + START_S
    while not condition():
        if time.monotonic() > deadline:
            raise BenchError(name, f"did not start: {log.read_text(errors='replace')[-1500:]}")
        time.sleep(0.05)


def _listens(address: str) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((address, PORT), timeout=1):
        return True
    return False


def _field(number: int, content: bytes) -> bytes:
    """A length-delimited field of a protobuf message."""
    length, rest = bytearray(), len(content)
    while rest > 0x7F:
        length.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([number << 3 | 2]) + bytes(length) + bytes([rest]) + content
