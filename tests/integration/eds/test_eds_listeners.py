"""Publishers other than NATS: they hear each change, whoever leads and whether NATS is there or not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from copydesk.common.bus import Bus
from copydesk.common.messages import EndpointsSnapshot
from copydesk.common.settings import load_settings
from copydesk.eds.leadership import Alone
from copydesk.eds.metrics import Metrics
from copydesk.eds.roster import Listed
from copydesk.eds.service import OnSnapshot, Service
from copydesk.eds.settings import EdsSettings, SourceKind
from copydesk.eds.source import Emit
from copydesk.eds.sources import make_source
from tests.fixtures.nats import NatsServer, free_port
from tests.fixtures.until import until


class Follower(Alone):
    """A replica that never leads."""

    def is_leader(self, now: float) -> bool:
        del now
        return False

    async def start(self, on_change: Callable[[], None]) -> None:
        del on_change


class Candidate(Alone):
    """A replica that writes down when it begins to stand for election."""

    stands = False

    async def start(self, on_change: Callable[[], None]) -> None:
        del on_change
        self.stands = True


class MuteSource:
    """A source that says nothing before it is told to."""

    def __init__(self) -> None:
        self.emit: Emit | None = None

    async def start(self, emit: Emit) -> None:
        self.emit = emit

    async def close(self) -> None:
        pass


class Listener:
    """Writes down the generations and pods that it was told."""

    def __init__(self) -> None:
        self.told: list[tuple[int, str]] = []

    def __call__(self, snapshot: EndpointsSnapshot) -> None:
        self.told.append((snapshot.generation, "".join(endpoint.id for endpoint in snapshot.endpoints)))


def write(path: Path, ids: str) -> None:
    path.write_text(f"m: [{', '.join(f'{{id: {pod}, host: h, port: {1000 + ord(pod)}}}' for pod in ids)}]\n")


@pytest.fixture
def pods(tmp_path: Path) -> Path:
    path = tmp_path / "pods.yaml"
    write(path, "a")
    return path


@asynccontextmanager
async def running(url: str, pods: Path, alone: Alone, *listeners: OnSnapshot) -> AsyncIterator[Service]:
    settings = load_settings(
        EdsSettings,
        source=SourceKind.STATIC,
        static_file=pods,
        static_poll_ms=10,
        debounce_ms=1,
        publish_interval_ms=100,
    )
    metrics = Metrics(CollectorRegistry())
    bus = await Bus.connect(url, name="eds")
    service = Service(settings, bus, make_source(settings, bus, metrics), metrics, alone, listeners)
    task = asyncio.create_task(service.run())
    try:
        yield service
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await bus.close()


async def test_listeners_hear_each_change_once_without_nats_and_without_leading(pods: Path) -> None:
    listener = Listener()
    async with running(f"nats://127.0.0.1:{free_port()}", pods, Follower(7), listener) as service:
        await until(lambda: listener.told == [(1, "a")])
        write(pods, "ab")
        await until(lambda: len(listener.told) == 2)
        assert listener.told[1] == (2, "ab")
        assert not service.observe().leader


async def test_a_listener_that_fails_is_in_nobodys_way(nats_server: NatsServer, pods: Path) -> None:
    def fail(_: EndpointsSnapshot) -> None:
        raise RuntimeError("no idea what to do with that")

    heard: list[EndpointsSnapshot] = []
    ear = await Bus.connect(nats_server.url, name="ear")
    await ear.subscribe("copydesk.v1.endpoints.m", EndpointsSnapshot, heard.append)
    assert await ear.wait_connected(5)
    listener = Listener()
    async with running(nats_server.url, pods, Alone(7), fail, listener):
        await until(lambda: len(heard) >= 3)
        assert listener.told == [(1, "a")]
        assert {(snapshot.epoch, snapshot.generation) for snapshot in heard} == {(7, 1)}
    await ear.close()


async def test_a_replica_stands_for_election_only_once_it_knows_who_is_there() -> None:
    candidate, source = Candidate(7), MuteSource()
    metrics = Metrics(CollectorRegistry())
    bus = await Bus.connect(f"nats://127.0.0.1:{free_port()}", name="eds")
    settings = load_settings(EdsSettings, source=SourceKind.KUBERNETES)
    service = Service(settings, bus, source, metrics, candidate)
    task = asyncio.create_task(service.run())
    try:
        await until(lambda: source.emit is not None and service.turn_age < 0.05)
        first = asyncio.get_running_loop().time()
        await until(lambda: asyncio.get_running_loop().time() - service.turn_age > first)
        assert not candidate.stands
        assert source.emit is not None
        source.emit(Listed({}))
        await until(lambda: candidate.stands)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await bus.close()
