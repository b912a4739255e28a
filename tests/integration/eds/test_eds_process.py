"""The discovery process against a real nats-server: what comes in as reports or a file goes out as snapshots."""

from __future__ import annotations

import asyncio
import http.client
import os
import signal
import sys
import time
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import msgspec
import pytest

from copydesk.common.bus import Bus
from copydesk.common.messages import (
    EndpointsSnapshot,
    EndpointState,
    LoadReport,
    endpoints_subject,
    load_subject,
)
from copydesk.eds.view import ReplicaView
from tests.fixtures.fake_pod import FakePod
from tests.fixtures.nats import NatsServer, free_port
from tests.fixtures.until import until

MODEL = "gec-en"
FAST = {"HEARTBEAT_TIMEOUT_MS": "800", "PUBLISH_INTERVAL_MS": "300", "SETTLE_MS": "400", "STATIC_POLL_MS": "30"}


async def start_eds(server: NatsServer, log: Path, **settings: str) -> asyncio.subprocess.Process:
    environ = {f"COPYDESK_EDS_{key}": value for key, value in {**FAST, **settings}.items()}
    with log.open("ab") as errors:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "copydesk.eds",
            env={**os.environ, "COPYDESK_EDS_NATS_URL": server.url, **environ},
            stderr=errors,
        )


async def stop(process: asyncio.subprocess.Process, signum: signal.Signals = signal.SIGTERM) -> int:
    if process.returncode is None:
        process.send_signal(signum)
    async with asyncio.timeout(15):
        return await process.wait()


@asynccontextmanager
async def running_eds(server: NatsServer, log: Path, **settings: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await start_eds(server, log, **settings)
    try:
        yield process
    finally:
        await stop(process, signal.SIGKILL)


class Net:
    """The other side of the bus: pods that report every 50 ms, and a receiver of snapshots."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.snapshots: list[EndpointsSnapshot] = []
        self.pods: dict[str, EndpointState] = {}
        self.ports: dict[str, int] = {}
        self._sequence = 0

    def report(self) -> None:
        self._sequence += 1
        for pod, state in self.pods.items():
            message = LoadReport(
                model=MODEL,
                pod=pod,
                sequence=self._sequence,
                sent_at=time.time(),
                started_at=5.0,
                host="127.0.0.1",
                port=self.ports.setdefault(pod, free_port()),
                state=state,
                running=0,
                queued=0,
                capacity=8,
                step_ms=1.0,
                digest="sha256:x",
            )
            self.bus.publish(load_subject(MODEL, pod), message)

    async def keep_reporting(self) -> None:
        while True:
            self.report()
            await asyncio.sleep(0.05)

    def now(self) -> dict[str, EndpointState] | None:
        """The pods of the last snapshot, with their states."""
        if not self.snapshots:
            return None
        return {endpoint.id: endpoint.state for endpoint in self.snapshots[-1].endpoints}

    def has_more_than(self, snapshots: int) -> bool:
        return len(self.snapshots) > snapshots

    async def until(self, **pods: EndpointState) -> None:
        await until(lambda: self.now() == pods)


@pytest.fixture
async def net(nats_server: NatsServer) -> AsyncIterator[Net]:
    bus = await Bus.connect(nats_server.url, name="test")
    net = Net(bus)
    await bus.subscribe(endpoints_subject(MODEL), EndpointsSnapshot, net.snapshots.append)
    assert await bus.wait_connected(5)
    reporting = asyncio.create_task(net.keep_reporting())
    yield net
    reporting.cancel()
    await bus.close()


async def test_reports_become_a_snapshot_draining_shows_and_silence_removes(
    net: Net, nats_server: NatsServer, tmp_path: Path
) -> None:
    net.pods = {"a": EndpointState.READY, "b": EndpointState.WARMING}
    async with running_eds(nats_server, tmp_path / "eds.log") as eds:
        await net.until(a=EndpointState.READY, b=EndpointState.WARMING)
        net.pods["b"] = EndpointState.DRAINING
        await net.until(a=EndpointState.READY, b=EndpointState.DRAINING)
        del net.pods["b"]
        await net.until(a=EndpointState.READY)
        assert [s.generation for s in net.snapshots] == sorted(s.generation for s in net.snapshots)
        assert await stop(eds) == 0
    assert "eds_stopped" in (tmp_path / "eds.log").read_text()


async def test_silent_pods_that_still_greet_stay_and_go_once_their_ports_are_closed(
    net: Net, nats_server: NatsServer, tmp_path: Path
) -> None:
    pod = await FakePod("a").start()
    net.ports["a"], net.pods = pod.port, {"a": EndpointState.READY, "b": EndpointState.READY}
    port = free_port()
    async with running_eds(nats_server, tmp_path / "eds.log", METRICS_PORT=str(port)):
        await net.until(a=EndpointState.READY, b=EndpointState.READY)
        net.pods = {}
        await net.until(a=EndpointState.READY)
        metrics = (await asyncio.to_thread(_get, f"http://127.0.0.1:{port}/metrics")).splitlines()
        assert f'copydesk_eds_held_endpoints{{model="{MODEL}"}} 1.0' in metrics
        assert f'copydesk_eds_endpoints{{model="{MODEL}",state="ready"}} 1.0' in metrics
        assert "copydesk_eds_bus_connected 1.0" in metrics
        assert "copydesk_eds_leader 1.0" in metrics
        view = msgspec.json.decode(
            await asyncio.to_thread(_get, f"http://127.0.0.1:{port}/endpoints"), type=ReplicaView
        )
        assert [(model.snapshot.model, [held.id for held in model.held]) for model in view.models] == [
            (MODEL, ["a"])
        ]
        assert (view.leader, view.epoch) == (True, net.snapshots[-1].epoch)
        assert "loss_held_back" in (tmp_path / "eds.log").read_text()
        await pod.stop()
        await net.until()
        assert net.snapshots[-1].endpoints == ()


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=5) as answer:
        return str(answer.read().decode())


async def test_pods_that_a_list_calls_unready_all_at_once_are_shown_so_when_they_say_so_themselves(
    net: Net, nats_server: NatsServer, tmp_path: Path
) -> None:
    pods = {name: await FakePod(name).start() for name in ("a", "b")}
    path, log = tmp_path / "pods.yaml", tmp_path / "eds.log"

    def write(state: EndpointState) -> None:
        lines = (f"  - {{id: {p.name}, host: 127.0.0.1, port: {p.port}, state: {state}}}\n" for p in pods.values())
        path.write_text(f"{MODEL}:\n{''.join(lines)}")

    write(EndpointState.READY)
    async with running_eds(nats_server, log, SOURCE="static", STATIC_FILE=str(path)):
        await net.until(a=EndpointState.READY, b=EndpointState.READY)
        write(EndpointState.WARMING)
        await until(lambda: log.read_text().count('"found": "alive"') == 2)
        assert net.now() == {"a": EndpointState.READY, "b": EndpointState.READY}
        pods["a"].state = EndpointState.WARMING
        await net.until(a=EndpointState.WARMING, b=EndpointState.READY)
        await pods["b"].stop()
        await net.until(a=EndpointState.WARMING, b=EndpointState.WARMING)
    await pods["a"].stop()


async def test_it_is_alive_from_the_start_and_ready_once_it_can_say_who_is_there(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    nats_server.stop()
    port = free_port()
    log = tmp_path / "eds.log"
    async with running_eds(nats_server, log, METRICS_PORT=str(port)):
        await until(lambda: "eds_started" in log.read_text())
        assert (await asyncio.to_thread(_status, port, "/healthz")) == 200
        assert (await asyncio.to_thread(_status, port, "/readyz")) == 503
        nats_server.start()
        async with asyncio.timeout(15):
            while await asyncio.to_thread(_status, port, "/readyz") != 200:  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.02)
        # That NATS is away again is no reason to take it out of service.
        nats_server.stop()
        await until(lambda: "bus_lost" in log.read_text())
        assert (await asyncio.to_thread(_status, port, "/readyz")) == 200
        ready = msgspec.json.decode(await asyncio.to_thread(_get, f"http://127.0.0.1:{port}/readyz"))
        assert (ready["leader"], ready["bus_connected"]) == (True, False)


def _status(port: int, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    connection.request("GET", path)
    status = connection.getresponse().status
    connection.close()
    return status


async def test_a_port_for_metrics_that_is_taken_is_named(nats_server: NatsServer, tmp_path: Path) -> None:
    log = tmp_path / "eds.log"
    process = await start_eds(nats_server, log, METRICS_PORT=str(nats_server.port))
    async with asyncio.timeout(15):
        assert await process.wait() == 2
    assert f"COPYDESK_EDS_METRICS_PORT: 127.0.0.1:{nats_server.port}: " in log.read_text()


async def test_a_restart_of_nats_removes_nobody(net: Net, nats_server: NatsServer, tmp_path: Path) -> None:
    net.pods = {"a": EndpointState.READY, "b": EndpointState.READY}
    async with running_eds(nats_server, tmp_path / "eds.log"):
        await net.until(a=EndpointState.READY, b=EndpointState.READY)
        seen = len(net.snapshots)
        nats_server.stop()
        # Longer than the time-out, so that only the clock that stands still keeps the pods.
        await asyncio.sleep(1.2)
        nats_server.start()
        await until(lambda: len(net.snapshots) >= seen + 6)
        assert {tuple(e.id for e in s.endpoints) for s in net.snapshots[seen:]} == {("a", "b")}
        assert {s.generation for s in net.snapshots[seen:]} == {net.snapshots[seen - 1].generation}


async def test_a_killed_and_restarted_discovery_publishes_the_same_under_a_larger_epoch(
    net: Net, nats_server: NatsServer, tmp_path: Path
) -> None:
    net.pods = {"a": EndpointState.READY, "b": EndpointState.READY}
    for _ in range(2):
        seen = len(net.snapshots)
        async with running_eds(nats_server, tmp_path / "eds.log"):
            await until(partial(net.has_more_than, seen + 1))
    assert {tuple(e.id for e in s.endpoints) for s in net.snapshots} == {("a", "b")}
    epochs = [snapshot.epoch for snapshot in net.snapshots]
    assert epochs == sorted(epochs)
    assert len(set(epochs)) == 2


async def test_an_edited_static_file_is_followed_and_a_broken_one_is_not(
    net: Net, nats_server: NatsServer, tmp_path: Path
) -> None:
    path = tmp_path / "pods.yaml"
    path.write_text(f"{MODEL}: [{{host: 127.0.0.1, port: 9001, id: a}}]\n")
    log = tmp_path / "eds.log"
    async with running_eds(nats_server, log, SOURCE="static", STATIC_FILE=str(path)):
        await net.until(a=EndpointState.READY)
        path.write_text(f"{MODEL}:\n  - {{host: 127.0.0.1\n")
        await until(lambda: "static_file_broken" in log.read_text())
        path.write_text(f"{MODEL}: [{{host: 127.0.0.1, port: 9001, id: a}}, {{host: 127.0.0.1, port: 9002}}]\n")
        await net.until(**{"a": EndpointState.READY, "127.0.0.1-9002": EndpointState.READY})


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"DEBOUNCE_MS": "soon"}, "COPYDESK_EDS_DEBOUNCE_MS='soon'"),
        ({"SOURCE": "static"}, "COPYDESK_EDS_STATIC_FILE"),
        ({"SOURCE": "static", "STATIC_FILE": "/absent.yaml"}, "/absent.yaml: cannot be read"),
        ({"NATS_URL": "http://x"}, "COPYDESK_EDS_NATS_URL"),
    ],
)
async def test_what_cannot_begin_says_why_and_exits_with_2(
    nats_server: NatsServer, tmp_path: Path, settings: dict[str, str], complaint: str
) -> None:
    process = await start_eds(nats_server, tmp_path / "eds.log", **settings)
    async with asyncio.timeout(15):
        assert await process.wait() == 2
    assert complaint in (tmp_path / "eds.log").read_text()


async def test_it_ends_on_sigterm_with_0_while_there_is_no_nats(nats_server: NatsServer, tmp_path: Path) -> None:
    nats_server.stop()
    log = tmp_path / "eds.log"
    process = await start_eds(nats_server, log)
    await until(lambda: "bus_unreachable" in log.read_text())
    assert await stop(process) == 0
