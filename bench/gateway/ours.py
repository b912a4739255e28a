"""Our gateway with everything on that a request passes: key, limits, deadline, balancing, histograms; no cache."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from bench.gateway.pods import KEY, READY_SECONDS, await_port
from bench.gateway.processes import StartError, pinned
from copydesk.common.messages import Endpoint, EndpointsSnapshot, EndpointState
from tests.fixtures.nats import free_port

MODEL = "gec-en"
SNAPSHOT_SECONDS = 2.0

_PUBLISHER = """
import asyncio, sys
import msgspec
from copydesk.common.bus import Bus
from copydesk.common.messages import EndpointsSnapshot, endpoints_subject
async def main(url, file, seconds):
    snapshot = msgspec.json.decode(open(file, "rb").read(), type=EndpointsSnapshot)
    bus = await Bus.connect(url, name="bench")
    while True:
        bus.publish(endpoints_subject(snapshot.model), snapshot)
        await asyncio.sleep(float(seconds))
asyncio.run(main(*sys.argv[1:]))
"""


@contextlib.contextmanager
def gateway(
    ports: Sequence[int], core: int, other_core: int, directory: Path, aperture: int, way: str = "compiled"
) -> Iterator[tuple[int, int]]:
    """Run NATS, a publisher of the pods' addresses, and a gateway; yields the gateway's port and process.

    `way` is the gateway's setting CORE: its compiled lane, or all in Python.
    """
    directory.mkdir()
    with contextlib.ExitStack() as stack:
        nats = _nats(stack, other_core, directory)
        _publisher(stack, other_core, directory, nats, ports)
        port, log = free_port(), directory / "gateway.log"
        environment = _environment(directory, port, nats, aperture) | {"COPYDESK_GATEWAY_CORE": way}
        command = [sys.executable, "-m", "copydesk.gateway"]
        process = stack.enter_context(pinned(command, core, log, environment))
        await_port(port, "copydesk", process, log)
        _await_pods(port, min(aperture, len(ports)), process, log)
        yield port, process.pid


def _nats(stack: contextlib.ExitStack, core: int, directory: Path) -> str:
    binary = shutil.which("nats-server", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if binary is None:
        raise StartError("nats-server", "it is not installed")
    port, log = free_port(), directory / "nats.log"
    process = stack.enter_context(pinned([binary, "-a", "127.0.0.1", "-p", str(port)], core, log))
    await_port(port, "nats-server", process, log)
    return f"nats://127.0.0.1:{port}"


def _publisher(stack: contextlib.ExitStack, core: int, directory: Path, nats: str, ports: Sequence[int]) -> None:
    pods = tuple(
        Endpoint(id=f"pod-{port}", host="127.0.0.1", port=port, state=EndpointState.READY) for port in ports
    )
    snapshot = EndpointsSnapshot(model=MODEL, epoch=1, generation=1, sent_at=time.time(), endpoints=pods)
    file = directory / "snapshot.json"
    file.write_bytes(msgspec.json.encode(snapshot))
    command = [sys.executable, "-c", _PUBLISHER, nats, str(file), str(SNAPSHOT_SECONDS)]
    stack.enter_context(pinned(command, core, directory / "publisher.log"))


def _environment(directory: Path, port: int, nats: str, aperture: int) -> dict[str, str]:
    keys = directory / "keys"
    keys.write_text(f"bench:{hashlib.sha256(KEY.encode()).hexdigest()}\n")
    settings = {
        "HOST": "127.0.0.1",
        "PORT": port,
        "MODEL": MODEL,
        "NATS_URL": nats,
        "API_KEYS_FILE": keys,
        "LIMIT_REQUESTS_PER_SECOND": 100_000,
        "LIMIT_BURST": 100_000,
        "LIMIT_CONCURRENCY": 100_000,
        "CACHE": "off",
        "SHARE_SENTENCES": "false",
        "APERTURE": aperture,
        "LOG_LEVEL": "warning",
    }
    kept = {name: value for name, value in os.environ.items() if not name.startswith("COPYDESK_")}
    return kept | {f"COPYDESK_GATEWAY_{name}": str(value) for name, value in settings.items()}


def _await_pods(port: int, count: int, process: subprocess.Popen[bytes], log: Path) -> None:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/fleet", headers={"Authorization": f"Bearer {KEY}"}
    )
    deadline = time.monotonic() + READY_SECONDS
    found = 0
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(request) as answer:
            found = msgspec.json.decode(answer.read())["totals"]["eligible"]
            if found >= count:
                return
        time.sleep(0.1)
    raise StartError("copydesk", f"{found} of {count} pods became ready\n{log.read_text()[-2000:]}")
