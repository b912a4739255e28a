"""The service over a real nats-server, with a fleet that does as it is told; both live ten times as fast."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from copydesk.autoscaler.actuator import ActuatorError
from copydesk.autoscaler.limits import Limits
from copydesk.autoscaler.local import LocalActuator, LocalLeadership
from copydesk.autoscaler.log_entry import Entry
from copydesk.autoscaler.memory import Memory
from copydesk.autoscaler.metrics import Metrics
from copydesk.autoscaler.pilot import Pilot
from copydesk.autoscaler.plan import CapacitySource, Configuration, Plan
from copydesk.autoscaler.rules import Rules
from copydesk.autoscaler.service import Pace, Service
from copydesk.common.bus import Bus
from tests.fixtures.nats import NatsServer
from tests.fixtures.scaled_fleet import RATE, SLOTS, Fast, ScaledFleet, serving
from tests.fixtures.until import until

TIMES = 10.0
EVERY = 0.1
# A fleet that starts in a tenth of a second may follow falling demand within seconds.
RULES = Rules(cold_start_s=1.0, memory_s=10.0, shrink_s=2.0, new_leader_s=10.0, panic_s=5.0, stale_s=6.0)
LIVE = Configuration(limits=Limits(1, 12), rules=RULES, source=CapacitySource(concurrency=SLOTS, rate=RATE))
PLAN = Plan("gec-en", LIVE, image="registry/pod:1")


class Lines:
    """A decision log that is kept in memory."""

    def __init__(self) -> None:
        self.dropped = 0
        self.entries: list[Entry] = []

    def write(self, entry: Entry) -> None:
        self.entries.append(entry)


class Running:
    """A service in this process, and what it wrote down."""

    def __init__(self, bus: Bus, now: Fast, plans: Sequence[Plan], folder: Path) -> None:
        self.lines = Lines()
        self.registry = CollectorRegistry()
        self.pilots = [Pilot(plan) for plan in plans]
        models = [plan.model for plan in plans]
        self.leadership = LocalLeadership(bus, models)
        self.actuator = LocalActuator(bus, models, self.leadership.surpass)
        self.service = Service(
            self.pilots,
            bus,
            self.actuator,
            self.leadership,
            self.lines,
            Metrics(self.registry),
            Memory(folder),
            pace=Pace(2.0 / TIMES, 3.0 / TIMES),
            clock=now.clock(),
        )

    def metric(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"copydesk_autoscaler_{name}", labels)


@pytest.fixture
def now() -> Fast:
    return Fast(TIMES)


@pytest.fixture
async def bus(nats_server: NatsServer) -> AsyncIterator[Bus]:
    bus = await Bus.connect(nats_server.url, name="test")
    assert await bus.wait_connected(5)
    yield bus
    await bus.close()


@asynccontextmanager
async def autoscaling(nats_server: NatsServer, now: Fast, folder: Path, *plans: Plan) -> AsyncIterator[Running]:
    bus = await Bus.connect(nats_server.url, name="autoscaler")
    running = Running(bus, now, plans or (PLAN,), folder)
    task = asyncio.create_task(running.service.run())
    try:
        yield running
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await bus.close()


async def test_pods_follow_demand_up_and_down(
    nats_server: NatsServer, bus: Bus, now: Fast, tmp_path: Path
) -> None:
    fleet = ScaledFleet(bus, pods=1, cold_start=1.0, now=now)
    fleet.offered = 0.5 * RATE
    async with serving(fleet, EVERY), autoscaling(nats_server, now, tmp_path) as running:
        await until(lambda: len(fleet.decisions) >= 3)
        assert fleet.size == 1
        fleet.offered = 5.0 * RATE
        await until(lambda: fleet.ready >= 6)
        assert {one.image for one in fleet.decisions if one.replicas > one.inputs["size"]} == {"registry/pod:1"}
        calm = [one for one in fleet.decisions if one.replicas <= one.inputs["size"] and not one.inputs["pending"]]
        assert {one.image for one in calm} == {""}
        fleet.offered = 1.0 * RATE
        await until(lambda: fleet.size <= 3, timeout=40)
        moves = [one for one in running.lines.entries if one.replicas != one.size]
        assert {one.rule for one in moves} <= {"up", "panic", "down"}
        assert [one.sequence for one in running.lines.entries] == list(range(1, len(running.lines.entries) + 1))
        assert all(one.acted in ("ordered", "kept") for one in running.lines.entries)
        assert running.metric("leader") == 1.0
        assert running.metric("decisions_total", model="gec-en", policy="live", rule="down") >= 1  # type: ignore[operator]
        assert sum(one.observed.shed for one in running.lines.entries) > 0


async def test_while_nats_is_away_the_size_stays(
    nats_server: NatsServer, bus: Bus, now: Fast, tmp_path: Path
) -> None:
    fleet = ScaledFleet(bus, pods=6, now=now)
    fleet.offered = 4.0 * RATE
    async with serving(fleet, EVERY), autoscaling(nats_server, now, tmp_path) as running:
        await until(lambda: len(fleet.decisions) >= 10)
        size, written = fleet.size, len(running.lines.entries)
        nats_server.stop()
        await until(
            lambda: (running.metric("actuator_errors_total", model="gec-en", call="size") or 0) >= 2, timeout=30
        )
        fleet.offered = 0.1 * RATE  # nobody hears of it
        stopped = len(running.lines.entries)
        nats_server.start()
        await until(lambda: running.service.view().bus_connected and bus.connected, timeout=30)
        await until(lambda: len(running.lines.entries) >= stopped + 2, timeout=30)
        assert fleet.size == size
        assert all(one.replicas == size for one in running.lines.entries[written:])
        assert fleet.refused == []


async def test_a_model_in_trouble_touches_no_other(
    nats_server: NatsServer, bus: Bus, now: Fast, tmp_path: Path
) -> None:
    fleet = ScaledFleet(bus, pods=1, now=now)
    lost = replace(PLAN, model="lost")
    async with serving(fleet, EVERY), autoscaling(nats_server, now, tmp_path, lost, PLAN) as running:

        async def fail(model: str) -> int:
            if model == "lost":
                raise RuntimeError("a fault of the program")
            return fleet.size

        running.actuator.size = fail  # type: ignore[method-assign]
        fleet.offered = 4.0 * RATE
        await until(lambda: fleet.size >= 5)
        assert running.metric("turn_failures_total", model="lost") >= 1  # type: ignore[operator]
        assert {one.model for one in running.lines.entries} == {"gec-en"}


async def test_without_a_supervisor_nothing_is_decided_and_the_error_says_so(
    nats_server: NatsServer, bus: Bus, now: Fast, tmp_path: Path
) -> None:
    fleet = ScaledFleet(bus, pods=3, now=now)
    fleet.supervised = False
    async with serving(fleet, EVERY), autoscaling(nats_server, now, tmp_path) as running:
        await until(lambda: (running.metric("actuator_errors_total", model="gec-en", call="size") or 0) >= 3)
        assert fleet.decisions == []
        with pytest.raises(ActuatorError, match="no supervisor"):
            await running.actuator.size("gec-en")
        fleet.supervised = True
        await until(lambda: len(fleet.decisions) >= 1)
        assert fleet.decisions[0].inputs["size"] == 3


async def test_a_restart_in_a_ramp_does_not_shrink_and_begins_by_the_size_that_there_is(
    nats_server: NatsServer, bus: Bus, now: Fast, tmp_path: Path
) -> None:
    fleet = ScaledFleet(bus, pods=2, now=now)
    fleet.offered = 1.0 * RATE
    async with serving(fleet, EVERY):
        async with autoscaling(nats_server, now, tmp_path):
            await until(lambda: len(fleet.decisions) >= 3)
            fleet.offered = 5.0 * RATE
            await until(lambda: fleet.size >= 4)
        grown, before = fleet.size, len(fleet.decisions)
        fleet.offered = 0.2 * RATE
        began = now()
        async with autoscaling(nats_server, now, tmp_path) as running:
            await until(lambda: len(running.lines.entries) >= 1)
            assert running.lines.entries[0].size == grown
            await until(lambda: now() - began >= 10.0 + 3.0)
            held = [one for one in fleet.decisions[before:] if one.inputs["size"] > one.replicas]
            assert all(one.sent_at - running.lines.entries[0].time >= RULES.new_leader_s for one in held)
            assert running.lines.entries[0].rule in ("hold_new_leader", "hold_stale", "up", "steady")
            assert running.lines.entries[0].epoch > fleet.decisions[0].epoch


async def test_of_two_autoscalers_the_newer_one_acts_and_no_size_is_fought_over(
    nats_server: NatsServer, bus: Bus, now: Fast, tmp_path: Path
) -> None:
    fleet = ScaledFleet(bus, pods=3, now=now)
    fleet.offered = 2.0 * RATE
    greedy = replace(PLAN, live=replace(LIVE, limits=Limits(6, 12)))
    async with serving(fleet, EVERY), autoscaling(nats_server, now, tmp_path / "a") as older:
        await until(lambda: len(fleet.decisions) >= 3)
        async with autoscaling(nats_server, now, tmp_path / "b", greedy) as newer:
            await until(lambda: fleet.size == 6)
            await until(lambda: older.metric("leader") == 0.0)
            written = len(older.lines.entries)
            await until(lambda: len(newer.lines.entries) >= 8)
            assert len(older.lines.entries) == written
            assert older.pilots[0].state.demand  # it goes on observing
            sizes = [one.replicas for one in fleet.decisions if one not in fleet.refused]
            assert sizes == sorted(sizes)
        assert fleet.size == 6
