"""A fleet of small real processes that decisions over a real NATS make larger and smaller."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from copydesk.cli.fleet import events
from copydesk.cli.fleet.orders import Orders
from copydesk.cli.fleet.plan import ChildSpec, Role, Vital
from copydesk.cli.fleet.policy import Backoff
from copydesk.cli.fleet.scaler import Scaler
from copydesk.cli.fleet.scaling import Limits
from copydesk.cli.fleet.supervisor import Supervisor
from copydesk.common.bus import Bus
from copydesk.common.messages import (
    Endpoint,
    EndpointsSnapshot,
    EndpointState,
    ReplicaStatus,
    ScaleDecision,
    endpoints_subject,
    replicas_subject,
    scale_subject,
)
from tests.fixtures.nats import NatsServer
from tests.fixtures.until import until

MODEL = "tiny"
# Says that it is up by a file named after its process; ends at SIGTERM once there is a file named after the pod.
POD = """
import os, pathlib, signal, sys, time
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(1))
pathlib.Path(f"up.{os.getpid()}").touch()
while not (told and pathlib.Path("release." + sys.argv[1]).exists()):
    time.sleep(0.01)
"""
CRASH = "import sys; sys.exit(2)"


class World:
    """A supervised fleet with its scaler, and a test that plays autoscaler and discovery."""

    def __init__(self, directory: Path, limits: Limits, size: int) -> None:
        self.directory = directory
        self.code = POD
        self.python = sys.executable
        self.grace = 30.0
        self.seen: list[events.Event] = []
        self.statuses: list[ReplicaStatus] = []
        self.orders = Orders(MODEL, limits, size)
        self.supervisor = Supervisor(
            [self.plan(f"pod-{number}") for number in range(1, size + 1)],
            logs=directory,
            probe=self,
            report=self.seen.append,
            random=lambda: 0.0,
            backoff=Backoff(first=0.01, cap=0.05, early_limit=3),
            on_change=lambda: self.scaler.wake(),
        )
        self.scaler = Scaler(self.supervisor, self.orders, self.plan_more, self.seen.append)
        self.epoch, self.sequence = 5, 0
        self.ready: set[str] | None = None
        self.bus: Bus
        self.tasks: list[asyncio.Task[Any]] = []

    async def start(self, url: str) -> None:
        self.bus = await Bus.connect(url, name="test")
        await self.bus.subscribe(replicas_subject(MODEL), ReplicaStatus, self.statuses.append)
        self.supervisor.start()
        await self.supervisor.ready()
        self.fleet_bus = await Bus.connect(url, name="up")
        self.tasks = [
            asyncio.create_task(self.scaler.run(self.fleet_bus)),
            asyncio.create_task(self.discover()),
        ]
        assert await self.bus.wait_connected(10)
        assert await self.fleet_bus.wait_connected(10)
        await until(lambda: bool(self.statuses))

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.fleet_bus.close()
        await self.bus.close()
        self.supervisor.kill()
        await self.supervisor.stop()

    def plan(self, name: str) -> ChildSpec:
        return ChildSpec(name, Role.POD, (sys.executable, "-S", "-c", self.code, name), grace=self.grace)

    def plan_more(self, name: str) -> ChildSpec:
        argv = (self.python, "-S", "-c", self.code, name)
        return ChildSpec(name, Role.POD, argv, grace=self.grace, vital=Vital.NEVER)

    async def is_up(self, spec: ChildSpec, pid: int) -> bool:
        return (self.directory / f"up.{pid}").exists()

    async def discover(self) -> None:
        """Be discovery: every pod that is up is ready, or those that the test says."""
        for generation in range(1, 10_000):
            members = self.supervisor.members.values()
            up = {member.spec.name for member in members if member.up_since is not None and not member.draining}
            names = up if self.ready is None else self.ready
            pods = tuple(Endpoint(id=name, host="h", port=1, state=EndpointState.READY) for name in sorted(names))
            snapshot = EndpointsSnapshot(
                model=MODEL, epoch=1, generation=generation, sent_at=time.time(), endpoints=pods
            )
            self.bus.publish(endpoints_subject(MODEL), snapshot)
            await asyncio.sleep(0.05)

    def decide(self, replicas: int, **more: Any) -> None:
        self.sequence += 1
        values = {"epoch": self.epoch, "sequence": self.sequence, "reason": "so", "sent_at": time.time(), **more}
        self.bus.publish(scale_subject(MODEL), ScaleDecision(model=MODEL, replicas=replicas, **values))

    def release(self, *names: str) -> None:
        for name in names:
            (self.directory / f"release.{name}").touch()

    def pid(self, name: str) -> int:
        child = self.supervisor.members[name].child
        assert child is not None
        return child.pid

    @property
    def up(self) -> set[str]:
        return {name for name, member in self.supervisor.members.items() if member.up_since is not None}

    @property
    def names(self) -> set[str]:
        return set(self.supervisor.members)

    @property
    def draining(self) -> set[str]:
        return {name for name, member in self.supervisor.members.items() if member.draining}

    def happened(self, kind: type[events.Event]) -> list[Any]:
        return [event for event in self.seen if isinstance(event, kind)]


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nats_server: NatsServer) -> AsyncIterator[World]:
    monkeypatch.chdir(tmp_path)
    found = World(tmp_path, Limits(1, 3), 2)
    await found.start(nats_server.url)
    yield found
    await found.close()


async def test_a_decision_starts_pods_and_the_fleet_says_so_each_second(world: World) -> None:
    world.decide(3, reason="demand grew", rule="up")
    await until(lambda: world.up == {"pod-1", "pod-2", "pod-3"})
    (scaled,) = world.happened(events.Scaled)
    assert (scaled.before, scaled.pods, scaled.reason, scaled.rule) == (2, 3, "demand grew", "up")
    await until(lambda: world.statuses[-1].running == ("pod-1", "pod-2", "pod-3"))
    assert (world.statuses[-1].replicas, world.statuses[-1].epoch, world.statuses[-1].sequence) == (3, 5, 1)
    seen = len(world.statuses)
    await until(lambda: len(world.statuses) >= seen + 2)


async def test_the_youngest_drains_and_is_forgotten_when_it_has_ended(world: World) -> None:
    world.decide(1)
    await until(lambda: world.draining == {"pod-2"})
    await until(lambda: world.statuses[-1].draining == ("pod-2",))
    assert world.statuses[-1].running == ("pod-1",)
    assert not world.happened(events.Drained)
    world.release("pod-2")
    await until(lambda: world.names == {"pod-1"})
    (drained,) = world.happened(events.Drained)
    assert (drained.name, drained.how) == ("pod-2", "exited with code 0")
    assert not world.happened(events.ChildExited)


async def test_pods_drain_one_after_the_other(world: World) -> None:
    world.decide(3)
    await until(lambda: len(world.up) == 3)
    world.decide(1)
    await until(lambda: world.draining == {"pod-2", "pod-3"})
    first, second = world.happened(events.Draining)
    assert (first.name, second.name) == ("pod-3", "pod-2")
    assert second.time - first.time >= 0.9


async def test_a_pod_that_dies_while_it_drains_is_not_restarted(world: World) -> None:
    world.decide(1)
    await until(lambda: world.draining == {"pod-2"})
    os.kill(world.pid("pod-2"), signal.SIGKILL)
    await until(lambda: world.names == {"pod-1"})
    (drained,) = world.happened(events.Drained)
    assert drained.how == "was killed by SIGKILL"
    assert not world.happened(events.Restarted)


async def test_a_pod_that_dies_otherwise_comes_back_under_its_name(world: World) -> None:
    world.decide(3)
    await until(lambda: len(world.up) == 3)
    before = world.pid("pod-3")
    os.kill(before, signal.SIGKILL)
    await until(lambda: bool(world.happened(events.Restarted)))
    assert world.pid("pod-3") != before
    assert world.names == {"pod-1", "pod-2", "pod-3"}


async def test_a_pod_that_does_not_end_is_killed_when_its_time_is_over(world: World) -> None:
    world.grace = 0.2
    world.decide(3)
    await until(lambda: len(world.up) == 3)
    world.decide(2)
    await until(lambda: world.names == {"pod-1", "pod-2"})
    assert [event.name for event in world.happened(events.Killed)] == ["pod-3"]


async def test_more_pods_while_one_drains_are_new_ones_as_far_as_there_is_room(world: World) -> None:
    world.decide(1)
    await until(lambda: world.draining == {"pod-2"})
    world.decide(3)
    await until(lambda: "pod-3" in world.up)
    assert world.names == {"pod-1", "pod-2", "pod-3"}
    world.release("pod-2")
    await until(lambda: world.up == {"pod-1", "pod-2", "pod-3"} and not world.draining)


async def test_nobody_drains_who_is_alone_in_being_ready(world: World) -> None:
    heard: list[EndpointsSnapshot] = []
    await world.fleet_bus.subscribe(endpoints_subject(MODEL), EndpointsSnapshot, heard.append)
    world.ready = set()
    await until(lambda: [snapshot.endpoints for snapshot in heard[-3:]] == [(), (), ()])
    world.decide(1)
    await until(lambda: world.orders.target.replicas == 1)
    seen = len(world.statuses)
    await until(lambda: len(world.statuses) >= seen + 2)
    assert not world.draining
    world.ready = {"pod-2"}
    await until(lambda: world.draining == {"pod-1"})


async def test_a_pod_that_cannot_start_does_not_end_the_fleet_and_goes_at_once(world: World) -> None:
    world.code = CRASH
    world.decide(3)
    await until(lambda: len(world.happened(events.ChildExited)) >= 5)
    assert {event.name for event in world.happened(events.ChildExited)} == {"pod-3"}
    await until(lambda: world.statuses[-1].starting == ("pod-3",))
    world.decide(2)
    await until(lambda: world.names == {"pod-1", "pod-2"})
    assert not world.happened(events.Failed)


async def test_a_program_that_cannot_be_run_now_is_tried_until_it_can(world: World) -> None:
    world.python = str(world.directory / "python")
    world.decide(3)
    await until(lambda: len(world.happened(events.NotStarted)) >= 3)
    assert world.happened(events.NotStarted)[0].name == "pod-3"
    (world.directory / "python").symlink_to(sys.executable)
    await until(lambda: len(world.up) == 3)
    assert not world.happened(events.Failed)


async def test_decisions_of_a_former_leader_are_refused_and_that_is_told_once(world: World) -> None:
    world.decide(9, policy="careful")
    world.decide(3)
    await until(lambda: len(world.up) == 3)
    assert [event.reason for event in world.happened(events.Refused)] == [
        "it is a candidate's, not the live policy's"
    ]
    for _ in range(5):
        world.decide(1, epoch=4)
    world.decide(3)
    await until(lambda: world.orders.target.sequence == world.sequence)
    assert [event.reason for event in world.happened(events.Refused)][1:] == ["a newer leader has decided since"]
    assert not world.draining


async def test_decisions_are_heard_again_after_nats_came_back(world: World, nats_server: NatsServer) -> None:
    nats_server.stop()
    await until(lambda: not world.fleet_bus.connected)
    nats_server.start()
    assert await world.fleet_bus.wait_connected(10)
    assert await world.bus.wait_connected(10)
    world.decide(3)
    await until(lambda: len(world.up) == 3)


async def test_the_end_of_the_fleet_leaves_a_draining_pod_its_time(world: World) -> None:
    world.decide(1)
    await until(lambda: world.draining == {"pod-2"})
    pid = world.pid("pod-2")
    stopping = asyncio.create_task(world.supervisor.stop())
    world.release("pod-1")
    await until(lambda: world.supervisor.members["pod-1"].child is None)
    os.kill(pid, 0)
    world.release("pod-2")
    await stopping
    assert not world.happened(events.Killed)
