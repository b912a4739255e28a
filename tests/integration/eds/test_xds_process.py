"""Discovery as a process that serves xDS: an Envoy outlives its end, and its refusals to start."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from copydesk.common.messages import EndpointState
from tests.fixtures.envoy import NamedServer, python_client, running_envoy
from tests.fixtures.nats import free_port
from tests.fixtures.until import until

NOBODY = "nats://127.0.0.1:9"


class Discovery:
    """`python -m copydesk.eds` with a file of endpoints and without NATS."""

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        self._file = directory / "endpoints.json"
        self._log = directory / "eds.log"
        self._process: asyncio.subprocess.Process | None = None

    def state(self, *pods: tuple[NamedServer, EndpointState]) -> None:
        """Have the file say that these are the pods."""
        entries = [
            {"id": pod.name, "host": "127.0.0.1", "port": pod.port, "state": state.value, "protocol": "openai"}
            for pod, state in pods
        ]
        fresh = self._file.with_suffix(".new")
        fresh.write_text(json.dumps({"gec-en": entries}))
        fresh.replace(self._file)

    async def start(self, **settings: str) -> asyncio.subprocess.Process:
        """Start a process; it is running, but may not listen yet."""
        values = {
            "NATS_URL": NOBODY,
            "SOURCE": "static",
            "STATIC_FILE": str(self._file),
            "STATIC_POLL_MS": "20",
            "XDS_PORT": str(self.port),
            **settings,
        }
        environ = {**os.environ, **{f"COPYDESK_EDS_{key}": value for key, value in values.items()}}
        with self._log.open("ab") as log:
            command = [sys.executable, "-m", "copydesk.eds"]
            self._process = await asyncio.create_subprocess_exec(*command, env=environ, stderr=log)
        return self._process

    async def end(self, signum: signal.Signals = signal.SIGKILL) -> int:
        """End the process, by default without a word; return its exit code."""
        assert self._process is not None
        if self._process.returncode is None:
            self._process.send_signal(signum)
        async with asyncio.timeout(20):
            return await self._process.wait()

    def story(self) -> str:
        return self._log.read_text()


@pytest.mark.parametrize(
    ("incremental", "signum", "code"),
    [(False, signal.SIGKILL, -signal.SIGKILL), (True, signal.SIGKILL, -signal.SIGKILL), (True, signal.SIGTERM, 0)],
    ids=["sotw", "delta", "delta-orderly"],
)
async def test_envoy_serves_on_when_discovery_ends_and_takes_the_new_state_when_it_is_back(
    tmp_path: Path, incremental: bool, signum: signal.Signals, code: int
) -> None:
    one, two = await NamedServer("pod-1").start(), await NamedServer("pod-2").start()
    discovery = Discovery(tmp_path)
    discovery.state((one, EndpointState.READY))
    await discovery.start()
    try:
        async with running_envoy(tmp_path, discovery.port, incremental=incremental) as envoy:
            await envoy.until_health({one.port: "HEALTHY"})
            assert await discovery.end(signum) == code
            discovery.state((one, EndpointState.DRAINING), (two, EndpointState.READY))
            assert await envoy.ask(20) == {"pod-1": 20}
            await envoy.until_stat("control_plane.connected_state", 0)
            assert await envoy.ask(20) == {"pod-1": 20}
            await discovery.start()
            await envoy.until_health({one.port: "DRAINING", two.port: "HEALTHY"})
            assert await envoy.ask(20) == {"pod-2": 20}
    finally:
        await discovery.end()
        await one.stop()
        await two.stop()


@pytest.mark.parametrize(
    ("settings", "key", "problem"),
    [
        ({"XDS_HOST": "192.0.2.1", "XDS_TOKEN": "t"}, "XDS_PORT", "192.0.2.1"),
        ({"XDS_HOST": "0.0.0.0"}, "XDS_HOST", "set XDS_TOKEN"),
        ({"XDS_TLS_CERT_FILE": "/no/cert", "XDS_TLS_KEY_FILE": "/no/key"}, "XDS_TLS_CERT_FILE", "/no/cert"),
    ],
)
async def test_what_it_cannot_serve_with_is_named_and_ends_it(
    tmp_path: Path, settings: dict[str, str], key: str, problem: str
) -> None:
    discovery = Discovery(tmp_path)
    discovery.state()
    process = await discovery.start(**settings)
    try:
        async with asyncio.timeout(20):
            assert await process.wait() == 2
    finally:
        await discovery.end()
    (line,) = [line for line in discovery.story().splitlines() if line.startswith("COPYDESK_EDS_")]
    assert line.startswith(f"COPYDESK_EDS_{key}")
    assert problem in line


async def test_the_program_on_the_page_prints_assignments_as_they_change(tmp_path: Path) -> None:
    discovery = Discovery(tmp_path)
    one, two = NamedServer("one"), NamedServer("two")
    one.port, two.port = 7001, 7002
    discovery.state((one, EndpointState.READY))
    await discovery.start()
    await until(lambda: "xds_listening" in discovery.story())
    program = python_client().replace("18000", str(discovery.port))
    client = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE)
    assert client.stdout is not None
    try:
        async with asyncio.timeout(30):
            assert await client.stdout.readline() == b"gec-en 127.0.0.1 7001 1\n"
            discovery.state((one, EndpointState.DRAINING), (two, EndpointState.READY))
            assert await client.stdout.readline() == b"gec-en 127.0.0.1 7001 3\n"
            assert await client.stdout.readline() == b"gec-en 127.0.0.1 7002 1\n"
    finally:
        client.kill()
        await client.communicate()
        await discovery.end()
