"""Two autoscalers and one Deployment: real processes, a real API server, a real nats-server, and a ramp of demand.

Every write to the Deployment is seen by a watch, so what is asserted of sizes holds for each moment.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec
import pytest

from copydesk.autoscaler.actuator import ActuatorError
from copydesk.autoscaler.kubernetes.connection import Named, Place, connect
from copydesk.autoscaler.kubernetes.fence import Reading, read_workload
from copydesk.autoscaler.kubernetes.objects import Workload
from copydesk.autoscaler.latency import NOTHING
from copydesk.common.bus import Bus
from copydesk.common.messages import (
    DemandReport,
    Endpoint,
    EndpointsSnapshot,
    EndpointState,
    Latency,
    ScaleDecision,
    demand_subject,
    endpoints_subject,
    scale_subject,
)
from copydesk.kube.api import Api, decode, find_config
from copydesk.kube.lease import read_lease
from copydesk.kube.objects import Lease
from tests.fixtures.kube import KubeSpace
from tests.fixtures.kube_scaling import ACCOUNT, EPOCH, MODEL, replicas_of, resize, workload_json
from tests.fixtures.nats import NatsServer
from tests.fixtures.until import until

LEASE = "copydesk-autoscaler"
LEASE_S = 2
SLOTS = 10
HONEST, DEAF = "copydesk.autoscaler", "tests.fixtures.autoscaler_replica"

# Processes start slowly where many do.
patiently = partial(until, timeout=60.0)


@dataclass
class History:
    """Each version of the Deployment, as a watch tells of it."""

    readings: list[Reading] = field(default_factory=list)

    @property
    def size(self) -> int:
        return self.readings[-1].replicas if self.readings else 0

    @property
    def epoch(self) -> int:
        return self.readings[-1].epoch if self.readings else 0

    def never_went_back(self) -> bool:
        """Neither has anybody shrunk it, nor written under an epoch smaller than one before."""
        sizes = [reading.replicas for reading in self.readings]
        epochs = [reading.epoch for reading in self.readings]
        return sizes == sorted(sizes) and epochs == sorted(epochs)

    async def follow(self, api: Api, namespace: str) -> None:
        path = f"apis/apps/v1/namespaces/{namespace}/deployments"
        async with api.watch(path, {"resourceVersion": "0"}) as batches:
            async for lines in batches:
                for line in lines:
                    self.readings.append(read_workload(decode(line, WatchLine).object))


class WatchLine(msgspec.Struct, frozen=True):
    object: Workload


@pytest.fixture
async def history(kube: KubeSpace, tmp_path: Path) -> AsyncIterator[History]:
    kube.create(workload_json(4))
    token = kube.server.admin.headers["Authorization"].removeprefix("Bearer ")
    api, history = Api(find_config(kube.config(tmp_path / "admin", token=token))), History()
    task = asyncio.create_task(history.follow(api, kube.name))
    await patiently(lambda: history.size == 4)
    yield history
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await api.close()


class Traffic:
    """What gateways and discovery say: demand rises, and each pod that is asked for is ready at once."""

    def __init__(self, bus: Bus, history: History) -> None:
        self._bus = bus
        self._history = history
        self._started = time.time()
        self.in_flight = 2.0 * SLOTS
        self.rise = 3.0 * SLOTS
        self.decisions: list[ScaleDecision] = []

    async def run(self) -> None:
        await self._bus.subscribe(scale_subject(MODEL), ScaleDecision, self.decisions.append)
        sequence = 0
        while True:
            sequence += 1
            self._bus.publish(demand_subject(MODEL, "g1"), self._demand(sequence))
            self._bus.publish(endpoints_subject(MODEL), self._snapshot(sequence))
            await asyncio.sleep(0.1)
            self.in_flight += 0.1 * self.rise

    def _demand(self, sequence: int) -> DemandReport:
        return DemandReport(
            model=MODEL,
            gateway="g1",
            sequence=sequence,
            sent_at=time.time(),
            started_at=self._started,
            interval_s=0.1,
            in_flight=self.in_flight,
            queued=0.0,
            completed=0,
            failed=0,
            shed=0,
            latency=Latency(counts=NOTHING, total_s=0.0, at_pods_s=0.0),
        )

    def _snapshot(self, sequence: int) -> EndpointsSnapshot:
        pods = (
            Endpoint(id=f"p{number}", host="h", port=1, state=EndpointState.READY)
            for number in range(self._history.size)
        )
        return EndpointsSnapshot(
            model=MODEL,
            epoch=int(self._started),
            generation=sequence,
            sent_at=time.time(),
            endpoints=tuple(pods),
        )


@pytest.fixture
async def traffic(nats_server: NatsServer, history: History) -> AsyncIterator[Traffic]:
    bus = await Bus.connect(nats_server.url, name="traffic")
    assert await bus.wait_connected(5)
    traffic = Traffic(bus, history)
    task = asyncio.create_task(traffic.run())
    yield traffic
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await bus.close()


@dataclass
class Replica:
    """One process of the autoscaler, and its log."""

    process: asyncio.subprocess.Process
    log: Path

    def count(self, *words: str) -> int:
        """How many lines of the log have all these words."""
        return sum(all(word in line for word in words) for line in self.log.read_text().splitlines())

    def decides(self) -> bool:
        """Whether it has begun to decide, if only for itself."""
        return self.count("capacity_assumed") > 0


Start = Callable[..., AbstractAsyncContextManager[Replica]]


@pytest.fixture
def start(kube: KubeSpace, nats_server: NatsServer, traffic: Traffic, tmp_path: Path) -> Start:
    config = kube.config(tmp_path / "config", token=kube.token(ACCOUNT))

    @asynccontextmanager
    async def running(name: str, module: str = HONEST) -> AsyncIterator[Replica]:
        settings = {
            "NATS_URL": nats_server.url,
            "ACTUATOR": "kubernetes",
            "KUBE_CONFIG": str(config),
            "LEASE_SECONDS": str(LEASE_S),
            "MODEL": MODEL,
            "MAX_PODS": "500",
            "CONCURRENCY": str(SLOTS),
            "COLD_START_S": "1",
            "INTERVAL_MS": "200",
            "SETTLE_MS": "500",
            "STATE_DIR": str(tmp_path / name),
        }
        environ = {**os.environ, **{f"COPYDESK_AUTOSCALER_{key}": value for key, value in settings.items()}}
        log = tmp_path / f"{name}.log"
        with log.open("wb") as errors:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", module, env=environ, stderr=errors
            )
        try:
            yield Replica(process, log)
        finally:
            for signum in (signal.SIGCONT, signal.SIGKILL):
                with suppress(ProcessLookupError):
                    process.send_signal(signum)
            await process.wait()

    return running


def lease_epoch(kube: KubeSpace) -> int:
    return read_lease(msgspec.convert(kube.get("Lease", LEASE), Lease)).epoch


async def test_when_the_leader_is_killed_in_a_ramp_the_other_goes_on_and_nobody_shrinks(
    kube: KubeSpace, history: History, traffic: Traffic, start: Start
) -> None:
    async with start("first") as first:
        await patiently(lambda: first.count("leading") == 1)
        async with start("second") as second:
            await patiently(lambda: second.decides() and history.size >= 6)
            old, size = history.epoch, history.size
            assert old == lease_epoch(kube)
            first.process.kill()
            await patiently(lambda: history.epoch > old and history.size > size)
            assert second.count("leading") == 1
            # The ramp is over. A leader that young shrinks nothing, however little there is to do.
            traffic.in_flight, traffic.rise = 1.0, 0.0
            await patiently(lambda: [d.rule for d in traffic.decisions[-10:]] == ["hold_new_leader"] * 10)
            assert history.never_went_back()
            assert history.size == replicas_of(kube)


async def test_a_leader_that_was_paused_in_a_ramp_and_wakes_up_does_not_resize_over_its_successor(
    history: History, traffic: Traffic, start: Start
) -> None:
    async with start("first") as first:
        await patiently(lambda: first.count("leading") == 1)
        async with start("second") as second:
            await patiently(lambda: second.decides() and history.size >= 6)
            old, size = history.epoch, history.size
            first.process.send_signal(signal.SIGSTOP)
            await patiently(lambda: history.epoch > old and history.size > size)
            first.process.send_signal(signal.SIGCONT)
            size, traffic.in_flight = history.size, 5.0 * traffic.in_flight
            await patiently(lambda: first.count("standing_by") == 1 and history.size > size)
            assert history.never_went_back()


async def test_a_leader_that_does_not_hear_of_the_end_of_its_term_is_refused_by_the_epoch_alone(
    history: History, traffic: Traffic, start: Start
) -> None:
    async with start("first", DEAF) as first:
        await patiently(lambda: first.count("leading") == 1)
        async with start("second") as second:
            await patiently(lambda: second.decides() and history.size >= 6)
            old = history.epoch
            first.process.send_signal(signal.SIGSTOP)
            await patiently(lambda: history.epoch > old)
        # The successor has marked the Deployment and died; nobody holds the paused one back but the mark.
        versions = len(history.readings)
        first.process.send_signal(signal.SIGCONT)
        traffic.in_flight *= 10.0
        await patiently(lambda: first.count("actuator_failed", "newer leader") == 1)
        assert old not in [reading.epoch for reading in history.readings[versions:]]
        assert history.never_went_back()


async def test_a_model_that_a_person_switches_off_under_load_stays_off_until_it_is_switched_on(
    kube: KubeSpace, history: History, traffic: Traffic, start: Start
) -> None:
    async with start("only") as only:
        await patiently(lambda: history.size >= 6)
        resize(kube, 0)
        await patiently(lambda: history.size == 0)
        decided = len(traffic.decisions)
        await patiently(lambda: len(traffic.decisions) >= decided + 10)
        assert history.size == 0
        assert only.count("model_switched_off") == 1
        resize(kube, 1)
        await patiently(lambda: history.size > 1)


async def test_an_epoch_that_no_lease_can_reach_is_surpassed_and_scaling_goes_on(
    kube: KubeSpace, history: History, tmp_path: Path
) -> None:
    """As after a Lease was deleted, and made anew by a machine whose clock is an hour late."""
    ahead = int((time.time() + 3600) * 1000)
    workload = workload_json(4)
    workload["metadata"]["annotations"] = {EPOCH: str(ahead)}
    kube.put(workload)
    place = Place(kube.config(tmp_path / "config", token=kube.token(ACCOUNT)), LEASE, LEASE_S)
    actuator, leadership = connect(place, {MODEL: Named()})
    loop = asyncio.get_running_loop()
    await leadership.start()
    await patiently(lambda: leadership.is_leader(loop.time()))
    with pytest.raises(ActuatorError) as caught:
        await actuator.resize(MODEL, 9, leadership.epoch)
    assert caught.value.fenced
    assert not leadership.is_leader(loop.time())
    await patiently(lambda: leadership.is_leader(loop.time()))
    assert leadership.epoch > ahead
    assert await actuator.resize(MODEL, 9, leadership.epoch) == 9
    await leadership.close()
    await actuator.close()
