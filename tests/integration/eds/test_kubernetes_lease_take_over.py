"""The Lease that decides who publishes, on a real API server: conflict, take-over, and a paused leader."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from copydesk.common.bus import Bus
from copydesk.common.messages import EndpointsSnapshot, endpoints_subject
from copydesk.kube.api import Api, find_config
from copydesk.kube.elector import Candidacy, LeaseLeadership
from copydesk.routing import Held, Verdict, hear, judge
from tests.fixtures.kube import KubeServer, KubeSpace
from tests.fixtures.kube_objects import pod_json, service_json, slice_json
from tests.fixtures.nats import NatsServer
from tests.fixtures.until import until

LEASE = "copydesk-eds"


def leads(replica: LeaseLeadership) -> bool:
    return replica.is_leader(asyncio.get_running_loop().time())


def shown_by_a_clock(ahead: float) -> float:
    return time.time() + ahead


@asynccontextmanager
async def standing(
    kube: KubeSpace, config: Path, *names: str, seconds: float = 2.0, **walls: float
) -> AsyncIterator[list[LeaseLeadership]]:
    """Replicas that stand for the lease of `kube`; `walls` are how far their clocks are ahead, in seconds."""
    replicas = []
    for name in names:
        candidacy = Candidacy(kube.name, LEASE, name, seconds)
        clock = partial(shown_by_a_clock, walls.get(name, 0.0))
        replicas.append(LeaseLeadership(Api(find_config(config)), candidacy, wall=clock))
    for replica in replicas:
        await replica.start(lambda: None)
    try:
        yield replicas
    finally:
        for replica in replicas:
            await replica.close()


async def test_of_replicas_that_start_together_one_leads_and_the_next_follows_when_it_stands_down(
    kube: KubeSpace, tmp_path: Path
) -> None:
    config = kube.config(tmp_path / "config")
    async with standing(kube, config, "a", "b", "c") as replicas:
        epochs = []
        for _ in range(3):
            await until(lambda: any(leads(replica) for replica in replicas))
            (leader,) = [replica for replica in replicas if leads(replica)]
            epochs.append(leader.epoch)
            await leader.close()
            assert not leads(leader)
            replicas.remove(leader)
        assert epochs == sorted(set(epochs))
    assert kube.get("Lease", LEASE)["spec"]["leaseTransitions"] >= 2


async def test_a_successor_whose_clock_is_an_hour_late_has_a_larger_epoch_all_the_same(
    kube: KubeSpace, tmp_path: Path
) -> None:
    config = kube.config(tmp_path / "config")
    async with standing(kube, config, "early", early=3600.0) as (early,):
        await until(lambda: leads(early))
    async with standing(kube, config, "late", late=0.0) as (late,):
        await until(lambda: leads(late))
        assert late.epoch == early.epoch + 1


async def test_a_leader_cut_off_from_the_server_stops_by_its_own_clock_and_leads_on_in_the_same_term_later(
    kube: KubeSpace, kube_server: KubeServer, tmp_path: Path
) -> None:
    async with standing(kube, kube.config(tmp_path / "config"), "a") as (replica,):
        await until(lambda: leads(replica))
        epoch = replica.epoch
        kube_server.freeze()
        try:
            await until(lambda: not leads(replica))
        finally:
            kube_server.thaw()
        await until(lambda: leads(replica))
        assert replica.epoch == epoch


async def test_who_finds_the_lease_written_by_somebody_else_stands_down_at_once(
    kube: KubeSpace, tmp_path: Path
) -> None:
    async with standing(kube, kube.config(tmp_path / "config"), "a", seconds=6.0) as (replica,):
        await until(lambda: leads(replica))
        epoch = replica.epoch
        other = kube.get("Lease", LEASE)
        other["spec"] |= {"holderIdentity": "kubectl", "leaseDurationSeconds": 1}
        kube.put(other)
        await until(lambda: not leads(replica))
        await until(lambda: leads(replica))
        assert replica.epoch > epoch


async def test_a_write_whose_answer_was_lost_is_found_again_and_the_term_goes_on(
    kube: KubeSpace, tmp_path: Path
) -> None:
    with structlog.testing.capture_logs() as logs:
        async with standing(kube, kube.config(tmp_path / "config"), "a") as (replica,):
            await until(lambda: leads(replica))
            lease = kube.get("Lease", LEASE)
            lease["spec"]["renewTime"] = "2026-01-01T00:00:00.000000Z"
            kube.put(lease)
            written = kube.get("Lease", LEASE)["metadata"]["resourceVersion"]
            # By somebody else, as far as the versions tell; by this replica, as far as the record does.
            await until(lambda: kube.get("Lease", LEASE)["metadata"]["resourceVersion"] != written)
            assert leads(replica)
            assert "lease_lost" not in [log["event"] for log in logs]


async def test_a_deleted_lease_is_made_anew_under_no_smaller_epoch(kube: KubeSpace, tmp_path: Path) -> None:
    async with standing(kube, kube.config(tmp_path / "config"), "a") as (replica,):
        await until(lambda: leads(replica))
        epoch = replica.epoch
        kube.delete("Lease", LEASE)
        await until(lambda: kube.has("Lease", LEASE))
        await until(lambda: leads(replica))
        assert replica.epoch >= epoch


class Receiver:
    """A gateway's view: each snapshot with the verdict on it."""

    def __init__(self) -> None:
        self.heard: list[tuple[EndpointsSnapshot, Verdict]] = []
        self._held: Held | None = None

    def take(self, snapshot: EndpointsSnapshot) -> None:
        now = asyncio.get_running_loop().time()
        verdict = judge(self._held, snapshot.epoch, snapshot.generation, now)
        self._held = hear(self._held, snapshot.epoch, snapshot.generation, now)
        self.heard.append((snapshot, verdict))

    def applied(self) -> list[tuple[int, tuple[str, ...]]]:
        """Epoch and pods of each snapshot that came into force."""
        return [
            (snapshot.epoch, tuple(pod.id for pod in snapshot.endpoints))
            for snapshot, verdict in self.heard
            if verdict is Verdict.APPLY
        ]

    def epochs(self) -> list[int]:
        return [snapshot.epoch for snapshot, _ in self.heard]


@asynccontextmanager
async def replica_process(config: Path, nats: NatsServer, log: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    settings = {
        "NATS_URL": nats.url,
        "SOURCE": "kubernetes",
        "KUBE_CONFIG": str(config),
        "LEASE_SECONDS": "2",
        "PUBLISH_INTERVAL_MS": "100",
    }
    environ = {**os.environ, **{f"COPYDESK_EDS_{key}": value for key, value in settings.items()}}
    with log.open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "copydesk.eds", env=environ, stderr=errors
        )
    try:
        yield process
    finally:
        for signum in (signal.SIGCONT, signal.SIGTERM):
            with suppress(ProcessLookupError):
                process.send_signal(signum)
        async with asyncio.timeout(15):
            await process.wait()


def holder(kube: KubeSpace) -> Any:
    return kube.get("Lease", LEASE)["spec"].get("holderIdentity")


async def test_a_paused_leader_that_wakes_up_does_not_speak_over_its_successor(
    kube: KubeSpace, nats_server: NatsServer, tmp_path: Path
) -> None:
    kube.create(service_json())
    kube.create(slice_json("s1", pod_json("a")))
    config = kube.config(tmp_path / "config")
    receiver = Receiver()
    bus = await Bus.connect(nats_server.url, name="gateway")
    await bus.subscribe(endpoints_subject("gec"), EndpointsSnapshot, receiver.take)
    assert await bus.wait_connected(5)
    async with replica_process(config, nats_server, tmp_path / "first.log") as first:
        await until(lambda: len(receiver.applied()) == 1)
        old = receiver.heard[0][0].epoch
        async with replica_process(config, nats_server, tmp_path / "second.log"):
            await until(lambda: "standing_by" in (tmp_path / "second.log").read_text())
            first.send_signal(signal.SIGSTOP)
            await until(lambda: receiver.epochs()[-1] > old)
            new = receiver.epochs()[-1]
            kube.put(slice_json("s1", pod_json("a"), pod_json("b", "10.0.0.2")))
            await until(lambda: receiver.applied()[-1] == (new, ("a", "b")))
            first.send_signal(signal.SIGCONT)
            await until(lambda: "lease_lost" in (tmp_path / "first.log").read_text())
            seen = len(receiver.heard)
            await until(lambda: len(receiver.heard) >= seen + 10)
            assert set(receiver.epochs()[seen:]) == {new}
            assert receiver.applied()[-1] == (new, ("a", "b"))
            # Whatever the old leader still sent between waking and looking, no gateway followed.
            assert [epoch for epoch, _ in receiver.applied()] == sorted(epoch for epoch, _ in receiver.applied())
    await bus.close()
    assert holder(kube) is None
    assert "HTTP Request" not in (tmp_path / "second.log").read_text()
