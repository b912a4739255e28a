"""Several replicas, one publisher: real processes, a real nats-server, and an election that the test decides."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from copydesk.common.bus import Bus
from copydesk.common.messages import EndpointsSnapshot, endpoints_subject
from copydesk.routing import Held, Verdict, hear, judge
from tests.fixtures.eds_replica import Lease
from tests.fixtures.nats import NatsServer
from tests.fixtures.until import until

MODEL = "gec-en"
FAST = {"PUBLISH_INTERVAL_MS": "100", "STATIC_POLL_MS": "20", "SOURCE": "static"}
TERM_S = 0.5


class Receiver:
    """What a gateway makes of the snapshots: the verdict on each, and which one is in force."""

    def __init__(self) -> None:
        self.heard: list[tuple[EndpointsSnapshot, Verdict]] = []
        self.in_force: EndpointsSnapshot | None = None
        self._held: Held | None = None

    def take(self, snapshot: EndpointsSnapshot) -> None:
        now = asyncio.get_running_loop().time()
        verdict = judge(self._held, snapshot.epoch, snapshot.generation, now)
        self._held = hear(self._held, snapshot.epoch, snapshot.generation, now)
        self.heard.append((snapshot, verdict))
        if verdict is Verdict.APPLY:
            self.in_force = snapshot

    def follows(self, epoch: int, *ids: str) -> bool:
        held = self.in_force
        return held is not None and held.epoch == epoch and tuple(e.id for e in held.endpoints) == ids

    def count(self, epoch: int) -> int:
        return sum(snapshot.epoch == epoch for snapshot, _ in self.heard)


@pytest.fixture
async def receiver(nats_server: NatsServer) -> AsyncIterator[Receiver]:
    receiver = Receiver()
    bus = await Bus.connect(nats_server.url, name="gateway")
    await bus.subscribe(endpoints_subject(MODEL), EndpointsSnapshot, receiver.take)
    assert await bus.wait_connected(5)
    yield receiver
    await bus.close()


class Election:
    """The lease file, and the renewal of the present term."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._renewal: asyncio.Task[None] | None = None

    def elect(self, holder: str, epoch: int) -> None:
        self.suspend()
        Lease(holder, epoch, time.monotonic() + TERM_S).write(self.path)
        self._renewal = asyncio.create_task(self._renew(holder, epoch))

    async def expire(self) -> None:
        """Renew no more, and let the term end, as a successor has to."""
        self.suspend()
        end = msgspec.json.decode(self.path.read_bytes(), type=Lease).until
        await until(lambda: time.monotonic() >= end)

    def suspend(self) -> None:
        if self._renewal is not None:
            self._renewal.cancel()

    async def _renew(self, holder: str, epoch: int) -> None:
        while True:
            await asyncio.sleep(TERM_S / 5)
            Lease(holder, epoch, time.monotonic() + TERM_S).write(self.path)


@pytest.fixture
async def election(tmp_path: Path) -> AsyncIterator[Election]:
    election = Election(tmp_path / "lease.json")
    election.elect("nobody", 1)
    yield election
    election.suspend()


class Replicas:
    """Replicas of one discovery over one static file."""

    def __init__(self, server: NatsServer, election: Election, directory: Path) -> None:
        self._server = server
        self._election = election
        self._directory = directory
        self._pods = directory / "pods.yaml"
        self.list("a")

    def list(self, *ids: str) -> None:
        pods = ", ".join(f"{{id: {pod}, host: h, port: {1000 + ord(pod)}}}" for pod in ids)
        fresh = self._directory / "pods.new"
        fresh.write_text(f"{MODEL}: [{pods}]\n")
        fresh.replace(self._pods)

    def log(self, name: str) -> str:
        return (self._directory / f"{name}.log").read_text()

    @asynccontextmanager
    async def running(self, name: str, kind: str = "honest") -> AsyncIterator[asyncio.subprocess.Process]:
        settings = {**FAST, "STATIC_FILE": str(self._pods), "NATS_URL": self._server.url}
        environ = {f"COPYDESK_EDS_{key}": value for key, value in settings.items()}
        arguments = ("-m", "tests.fixtures.eds_replica", name, str(self._election.path), kind)
        with (self._directory / f"{name}.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable, *arguments, env={**os.environ, **environ}, stderr=log
            )
        try:
            await until(lambda: "standing_by" in self.log(name))
            yield process
        finally:
            process.kill()
            await process.wait()


@pytest.fixture
def replicas(nats_server: NatsServer, election: Election, tmp_path: Path) -> Replicas:
    return Replicas(nats_server, election, tmp_path)


async def test_only_the_leader_publishes_and_a_new_one_begins_with_everything(
    receiver: Receiver, election: Election, replicas: Replicas
) -> None:
    async with replicas.running("one") as one, replicas.running("two"):
        election.elect("one", 100)
        await until(lambda: receiver.count(100) >= 3)
        one.send_signal(signal.SIGTERM)
        election.elect("two", 200)
        await until(lambda: receiver.follows(200, "a"))
        assert {snapshot.epoch for snapshot, _ in receiver.heard} == {100, 200}


@pytest.mark.parametrize("kind", ["honest", "deaf"])
async def test_a_leader_that_was_paused_and_wakes_up_does_not_speak_over_its_successor(
    receiver: Receiver, election: Election, replicas: Replicas, kind: str
) -> None:
    async with replicas.running("one", kind) as one, replicas.running("two"):
        election.elect("one", 100)
        await until(lambda: receiver.follows(100, "a"))
        one.send_signal(signal.SIGSTOP)
        await election.expire()
        election.elect("two", 200)
        replicas.list("a", "b")
        await until(lambda: receiver.follows(200, "a", "b"))
        before, heard = receiver.count(100), len(receiver.heard)
        one.send_signal(signal.SIGCONT)
        if kind == "deaf":
            await until(lambda: receiver.count(100) >= before + 5)
        else:
            await until(lambda: replicas.log("one").count("standing_by") == 2)
        after = receiver.count(200)
        await until(lambda: receiver.count(200) >= after + 5)
        late = {verdict for snapshot, verdict in receiver.heard[heard:] if snapshot.epoch == 100}
        assert late <= {Verdict.IGNORE}
        assert receiver.follows(200, "a", "b")
        if kind == "honest":
            # At most the one that it was about to send when it was paused.
            assert receiver.count(100) <= before + 1
