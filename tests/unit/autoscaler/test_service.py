"""The service with an actuator that fails: orders, errors, fences and terms. The bus is not there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
import structlog
from prometheus_client import CollectorRegistry

from copydesk.autoscaler import service as service_module
from copydesk.autoscaler.actuator import ActuatorError
from copydesk.autoscaler.capacity import Capacity
from copydesk.autoscaler.dry import Alone
from copydesk.autoscaler.log_entry import DRY, LIVE, Entry
from copydesk.autoscaler.memory import Memory
from copydesk.autoscaler.metrics import Metrics
from copydesk.autoscaler.pilot import Pilot
from copydesk.autoscaler.plan import CapacitySource, Configuration, Plan, PlanError
from copydesk.autoscaler.rules import Rules
from copydesk.autoscaler.service import Pace, Service
from copydesk.autoscaler.status_paths import status_paths
from copydesk.common.bus import Bus
from tests.fixtures.scaling_reports import demand_at, load_at
from tests.fixtures.until import until

SOURCE = CapacitySource(concurrency=10.0, rate=50.0)
NOWHERE = "nats://127.0.0.1:1"
EPOCH = 5000


class Hand:
    """An actuator of one fleet; what is in `failures` is raised instead of what was asked for."""

    def __init__(self, replicas: int = 3) -> None:
        self.replicas = replicas
        self.orders: list[tuple[int, int]] = []
        self.failures: dict[str, Exception] = {}
        self.hangs = False
        self.keeps: int | None = None

    async def start(self) -> None:
        return None

    async def close(self) -> None:
        return None

    async def size(self, model: str) -> int:
        if self.hangs:
            await asyncio.sleep(3600)
        self._fail("size")
        return self.replicas

    async def resize(self, model: str, replicas: int, epoch: int) -> int:
        self.orders.append((replicas, epoch))
        self._fail("resize")
        self.replicas = replicas if self.keeps is None else self.keeps
        return self.replicas

    def _fail(self, call: str) -> None:
        if call in self.failures:
            raise self.failures[call]


class Lines:
    def __init__(self) -> None:
        self.dropped = 0
        self.entries: list[Entry] = []

    def write(self, entry: Entry) -> None:
        self.entries.append(entry)


class House:
    """A service, and all around it."""

    def __init__(self, bus: Bus, folder: Path, plan: Plan, name: str) -> None:
        self.hand = Hand()
        self.leadership = Alone(EPOCH)
        self.lines = Lines()
        self.registry = CollectorRegistry()
        self.pilot = Pilot(plan, name)
        self.service = Service(
            [self.pilot],
            bus,
            self.hand,
            self.leadership,
            self.lines,
            Metrics(self.registry),
            Memory(folder),
            pace=Pace(0.005, 0.005),
        )

    def metric(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(f"copydesk_autoscaler_{name}", labels) or 0.0

    def hear(self, requests: float) -> None:
        """Have a gateway say that there is so much, from now on."""
        now = self.service._clock.now()
        self.pilot.observer.on_demand(demand_at(now, requests), now)


Build = Callable[..., "AsyncIterator[House]"]


@asynccontextmanager
async def house(folder: Path, plan: Plan | None = None, name: str = LIVE) -> AsyncIterator[House]:
    bus = await Bus.connect(NOWHERE, name="autoscaler")
    live = Configuration(rules=Rules(cold_start_s=1.0), source=SOURCE)
    found = House(bus, folder, plan or Plan("gec-en", live), name)
    task = asyncio.create_task(found.service.run())
    try:
        yield found
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await bus.close()


async def test_the_first_order_of_a_term_is_given_even_if_nothing_changes(tmp_path: Path) -> None:
    async with house(tmp_path) as found:
        await until(lambda: len(found.lines.entries) >= 4)
        assert found.hand.orders == [(3, EPOCH)]
        assert [one.acted for one in found.lines.entries[:3]] == ["ordered", "kept", "kept"]
        found.leadership.epoch = EPOCH + 1
        await until(lambda: len(found.hand.orders) == 2)
        assert found.hand.orders[1] == (3, EPOCH + 1)


async def test_an_order_that_fails_is_named_counted_and_given_again(tmp_path: Path) -> None:
    async with house(tmp_path) as found:
        found.hand.failures["resize"] = ActuatorError("gec-en", "the server is away")
        await until(lambda: len(found.lines.entries) >= 3)
        assert {one.acted for one in found.lines.entries} == {"failed: the server is away"}
        assert found.metric("actuator_errors_total", model="gec-en", call="resize") >= 3
        del found.hand.failures["resize"]
        await until(lambda: found.lines.entries[-1].acted == "kept")


async def test_a_size_that_nobody_can_tell_holds_all_orders(tmp_path: Path) -> None:
    async with house(tmp_path) as found:
        found.hand.failures["size"] = ActuatorError("gec-en", "the server is away")
        await until(lambda: found.metric("actuator_errors_total", model="gec-en", call="size") >= 3)
        assert (found.hand.orders, found.lines.entries) == ([], [])
        del found.hand.failures["size"]
        await until(lambda: len(found.lines.entries) >= 1)
        found.hand.failures["size"] = ActuatorError("gec-en", "the server is away")
        before, decided = len(found.lines.entries), found.pilot.state.last_at
        await until(lambda: (found.pilot.state.last_at or 0.0) > (decided or 0.0) + 0.05)
        assert len(found.lines.entries) <= before + 1  # it goes on observing, by the size that it knew


async def test_an_actuator_that_hangs_is_given_up_until_the_next_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_module, "CALL_SECONDS", 0.01)
    async with house(tmp_path) as found:
        found.hand.hangs = True
        await until(lambda: found.metric("actuator_errors_total", model="gec-en", call="size") >= 2)
        found.hand.hangs = False
        await until(lambda: len(found.lines.entries) >= 2)


async def test_who_is_fenced_acts_no_more_until_a_new_term(tmp_path: Path) -> None:
    async with house(tmp_path) as found:
        await until(lambda: len(found.lines.entries) >= 1)
        found.hand.failures["resize"] = ActuatorError("gec-en", "a newer leader", fenced=True)
        found.hand.replicas = 500  # so that there is something to order
        await until(lambda: found.metric("fenced_total", model="gec-en") == 1.0)
        orders, lines = len(found.hand.orders), len(found.lines.entries)
        decided = found.pilot.state.last_at or 0.0
        await until(lambda: (found.pilot.state.last_at or 0.0) > decided + 0.05)
        assert (len(found.hand.orders), len(found.lines.entries)) == (orders, lines)
        assert not found.service.view().leader
        del found.hand.failures["resize"]
        found.leadership.epoch = EPOCH + 1
        await until(lambda: len(found.hand.orders) > orders)
        assert found.hand.orders[-1][1] == EPOCH + 1


async def test_what_an_actuator_left_otherwise_stands_in_the_log(tmp_path: Path) -> None:
    async with house(tmp_path) as found:
        found.hand.replicas, found.hand.keeps = 0, 0  # switched off by a person
        await until(lambda: len(found.lines.entries) >= 2)
        assert {one.acted for one in found.lines.entries} == {"left at 0"}


async def test_where_nobody_acts_nothing_is_ordered(tmp_path: Path) -> None:
    async with house(tmp_path, name=DRY) as found:
        await until(lambda: len(found.lines.entries) >= 3)
        assert found.hand.orders == []
        assert {(one.policy, one.acted) for one in found.lines.entries} == {(DRY, "nobody acts")}


async def test_pods_that_run_other_weights_than_were_certified_end_the_start(tmp_path: Path) -> None:
    certified = CapacitySource(
        capacity=Capacity.assumed(10.0, 1000.0), certificate="capacity.json", digest="sha256:y"
    )
    async with house(tmp_path, Plan("gec-en", Configuration(source=certified))) as found:
        found.pilot.observer.on_load(load_at(5.0, "p", 1.0), found.service._clock.now())
        with pytest.raises(PlanError) as caught:
            await found.service.run()
        assert caught.value.key == "CERTIFICATE"
        assert "sha256:y; pods of gec-en run sha256:x" in caught.value.problem


async def test_weights_that_change_later_are_shown_and_scaling_goes_on(tmp_path: Path) -> None:
    certified = CapacitySource(
        capacity=Capacity.assumed(10.0, 1000.0), certificate="capacity.json", digest="sha256:y"
    )
    async with house(tmp_path, Plan("gec-en", Configuration(source=certified))) as found:
        await until(lambda: len(found.lines.entries) >= 1)
        assert found.metric("certificate_mismatch", model="gec-en") == 0.0
        found.pilot.observer.on_load(load_at(5.0, "p", 1.0), found.service._clock.now())
        await until(lambda: found.metric("certificate_mismatch", model="gec-en") == 1.0)
        written = len(found.lines.entries)
        await until(lambda: len(found.lines.entries) > written)


async def test_health_readiness_metrics_and_decisions_are_answered(tmp_path: Path) -> None:
    async with house(tmp_path) as found:
        paths = status_paths(found.service, found.registry)
        await until(lambda: len(found.lines.entries) >= 2)
        assert paths["/healthz"]().status == 200
        assert b'"ready":true,"leader":true,"epoch":5000,"bus_connected":false' in paths["/readyz"]().body
        metrics = paths["/metrics"]().body.decode()
        assert 'copydesk_autoscaler_desired_replicas{model="gec-en",policy="live"} 3.0' in metrics
        assert "copydesk_autoscaler_last_decision_age_seconds" in metrics
        assert b'"reason":"stay at 3' in paths["/decisions"]().body


async def test_it_is_not_ready_before_it_decides_and_not_alive_once_it_takes_no_turns(tmp_path: Path) -> None:
    bus = await Bus.connect(NOWHERE, name="autoscaler")
    found = House(bus, tmp_path, Plan("gec-en", Configuration(source=SOURCE)), LIVE)
    paths = status_paths(found.service, found.registry)
    assert paths["/readyz"]().status == 503
    found.service._courses["gec-en"].turned_at -= 1e6
    assert paths["/healthz"]().status == 503
    await bus.close()


async def test_a_name_that_two_gateways_have_is_said_once(tmp_path: Path) -> None:
    async with house(tmp_path) as found:
        later = demand_at(found.service._clock.now(), 5.0)
        known = msgspec.structs.replace(later, started_at=2.0)
        found.pilot.observer.on_demand(known, later.sent_at - 60.0)
        with structlog.testing.capture_logs() as logs:
            for sequence in range(3):
                now = found.service._clock.now()
                current = msgspec.structs.replace(
                    known, sequence=known.sequence + 1 + sequence, sent_at=now + 60.0
                )
                found.pilot.observer.on_demand(current, now)
                other = msgspec.structs.replace(later, sequence=later.sequence + sequence, sent_at=now + 60.0)
                found.service._hear_demand(found.pilot.observer, other)
        assert [log["gateway"] for log in logs if log["event"] == "gateway_name_twice"] == ["g1"]
        assert found.metric("messages_dropped_total", kind="demand", reason="name_twice") == 3.0
