"""The gateway as a process while its pods, processes too, freeze, crawl, fail and drain."""

from __future__ import annotations

import asyncio
import itertools
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import httpx
import msgspec

from copydesk.common.bus import Bus
from copydesk.common.messages import EndpointState, LoadReport, load_subject
from tests.fixtures.fake_pod import MODEL
from tests.fixtures.nats import NatsServer
from tests.integration.gateway.conftest import Discovery, PodProcess, Site, eventually


@dataclass
class Clients:
    """Clients that correct one text after another, and what they got."""

    client: httpx.AsyncClient
    results: Counter[object] = field(default_factory=Counter)
    running: bool = True
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def start(self, clients: int, **body: Any) -> None:
        self.tasks += [asyncio.create_task(self._run(number, body)) for number in range(clients)]

    async def more(self, count: int) -> None:
        """Wait until so many more answers have come."""
        target = self.results.total() + count

        async def reached() -> bool:
            return self.results.total() >= target

        await eventually(reached, within=60)

    async def finish(self) -> Counter[object]:
        self.running = False
        await asyncio.gather(*self.tasks)
        return self.results

    async def _run(self, number: int, body: dict[str, Any]) -> None:
        while self.running:
            response = await self.client.post("/v1/correct", json={"text": f"Client {number} go home."} | body)
            self.results[response.status_code] += 1


class Scene:
    """A gateway, its pods, and a client."""

    def __init__(self, client: httpx.AsyncClient, discovery: Discovery, pods: list[PodProcess]) -> None:
        self.client = client
        self.discovery = discovery
        self.pods = pods
        self.clients = Clients(client)

    async def fleet(self) -> dict[str, Any]:
        view: dict[str, Any] = (await self.client.get("/v1/fleet")).json()
        return view

    async def pod(self, name: str) -> dict[str, Any]:
        (found,) = [pod for pod in (await self.fleet())["pods"] if pod["id"] == name]
        assert isinstance(found, dict)
        return found

    async def ejected(self, name: str) -> bool:
        return (await self.pod(name))["ejected"] is not None


async def scene(site: Site, nats: NatsServer, *behaviours: str, zones: str = "", **settings: object) -> Scene:
    pods = [await site.pod(f"pod-{number}", behaviour) for number, behaviour in enumerate(behaviours)]
    discovery = await site.discovery(nats)
    endpoints = [pod.endpoint() for pod in pods]
    if zones:
        endpoints = [msgspec.structs.replace(one, zone=zone) for one, zone in zip(endpoints, zones, strict=True)]
    discovery.announce(*endpoints)
    client = await site.client(await site.gateway(nats.url, **settings))
    made = Scene(client, discovery, pods)

    async def complete() -> bool:
        return bool((await made.fleet())["totals"]["eligible"] == len(pods))

    await eventually(complete)
    return made


async def test_a_frozen_pod_is_ejected_within_two_seconds_and_no_request_fails(
    site: Site, nats_server: NatsServer
) -> None:
    made = await scene(site, nats_server, *["slow:16:0.05"] * 3)
    made.clients.start(12)
    await made.clients.more(300)
    made.pods[0].send_signal(signal.SIGSTOP)
    frozen = time.monotonic()
    await eventually(lambda: made.ejected("pod-0"), within=10)
    took = time.monotonic() - frozen
    await made.clients.more(300)
    made.pods[0].send_signal(signal.SIGCONT)

    async def back() -> bool:
        return not await made.ejected("pod-0") and (await made.pod("pod-0"))["eligible"]

    await eventually(back)
    assert set(await made.clients.finish()) == {200}
    assert took < 2.0
    totals = (await made.fleet())["totals"]
    assert totals["ejections"] >= 1
    assert totals["in_flight"] == 0


async def test_a_pod_whose_path_hangs_while_pings_are_fine_is_ejected_too(
    site: Site, nats_server: NatsServer
) -> None:
    made = await scene(site, nats_server, "slow:16:0.02", "slow:16:0.02", "hang")
    made.clients.start(8)
    await eventually(lambda: made.ejected("pod-2"), within=10)
    await made.clients.more(100)
    assert set(await made.clients.finish()) == {200}
    assert (await made.pod("pod-2"))["ejected"] == "silence"


async def test_a_pod_ten_times_slower_gets_less_than_a_fifth_of_its_share(
    site: Site, nats_server: NatsServer
) -> None:
    made = await scene(site, nats_server, "slow:16:0.04", "slow:16:0.04", "slow:16:0.4")
    made.clients.start(12)
    await made.clients.more(900)
    assert set(await made.clients.finish()) == {200}
    totals = (await made.fleet())["totals"]
    assert (await made.pod("pod-2"))["requests"] < totals["requests"] / 3 / 5


async def test_a_pod_that_fails_in_a_millisecond_does_not_draw_the_traffic_and_no_client_sees_it(
    site: Site, nats_server: NatsServer
) -> None:
    made = await scene(site, nats_server, "slow:16:0.02", "slow:16:0.02", "fail")
    made.clients.start(16)
    await made.clients.more(1000)
    assert set(await made.clients.finish()) == {200}
    assert (await made.pod("pod-2"))["requests"] < 30


async def test_a_draining_pod_gets_nothing_new_and_loses_nothing(site: Site, nats_server: NatsServer) -> None:
    made = await scene(site, nats_server, *["slow:16:0.1"] * 2)
    made.clients.start(12)
    await made.clients.more(60)
    counts = await made.pods[0].counts()
    before = (await made.pod("pod-0"))["requests"]
    await made.clients.more(60)
    assert set(await made.clients.finish()) == {200}
    assert (await made.pod("pod-0"))["requests"] == before
    assert counts["received"] <= before
    assert counts.get("cancelled", 0) == 0


async def test_expired_work_is_dropped_before_it_is_done(site: Site, nats_server: NatsServer) -> None:
    made = await scene(site, nats_server, "paced:1:0.5", overcommit=16)
    headers = {"X-Request-Deadline-Ms": "250"}
    patient = asyncio.create_task(made.client.post("/v1/correct", json={"text": "The first go."}))

    async def underway() -> bool:
        return bool((await made.fleet())["totals"]["in_flight"] == 1)

    await eventually(underway)
    posts = (made.client.post("/v1/correct", json={"text": f"Text {n} go."}, headers=headers) for n in range(6))
    answers = await asyncio.gather(*posts)
    assert {answer.status_code for answer in answers} == {504}
    assert (await patient).status_code == 200
    counts = await made.pods[0].counts()
    assert counts["received"] == 7
    assert counts["served"] == 1
    assert counts.get("cancelled", 0) + counts.get("expired", 0) == 6


async def test_a_client_that_leaves_takes_its_work_along(site: Site, nats_server: NatsServer) -> None:
    made = await scene(site, nats_server, "paced:1:0.3", overcommit=16)
    texts = {"texts": [f"Text {number} go on." for number in range(8)]}
    leaving = asyncio.create_task(made.client.post("/v1/correct", json=texts))

    async def in_flight(count: int) -> bool:
        return bool((await made.fleet())["totals"]["in_flight"] == count)

    await eventually(lambda: in_flight(8))
    leaving.cancel()
    await eventually(lambda: in_flight(0))
    counts = await made.pods[0].counts()
    assert counts["cancelled"] >= 7
    assert counts.get("served", 0) <= 1


async def test_ten_times_the_load_is_served_as_far_as_the_pods_can_and_else_refused(
    site: Site, nats_server: NatsServer
) -> None:
    made = await scene(site, nats_server, *["paced:4:0.05"] * 2, queue=16)
    made.clients.start(80)
    await made.clients.more(600)
    results = await made.clients.finish()
    assert set(results) == {200, 429}
    counts = [await pod.counts() for pod in made.pods]
    served = sum(count["served"] for count in counts)
    assert results[200] >= 0.9 * served
    assert sum(count["received"] for count in counts) == served


async def test_batch_work_makes_room_for_interactive_work(site: Site, nats_server: NatsServer) -> None:
    made = await scene(site, nats_server, "paced:4:0.05", queue=8)
    batch = Clients(made.client)
    batch.start(24, priority="batch")
    made.clients.start(8)
    await made.clients.more(200)
    assert set(await made.clients.finish()) == {200}
    assert 429 in await batch.finish()


async def test_the_own_zone_is_used_first_and_the_other_when_it_is_gone(
    site: Site, nats_server: NatsServer
) -> None:
    made = await scene(site, nats_server, *["slow:16:0.02"] * 4, zones="aabb", zone="a", zone_spillover=4)
    made.clients.start(2)
    await made.clients.more(200)
    here = (await made.pod("pod-0"))["requests"] + (await made.pod("pod-1"))["requests"]
    assert here > 0.7 * made.clients.results.total()
    for pod in made.pods[:2]:
        pod.send_signal(signal.SIGKILL)
    await made.clients.more(200)
    assert set(await made.clients.finish()) == {200}


async def test_of_many_pods_only_an_aperture_is_connected(site: Site, nats_server: NatsServer) -> None:
    pods = [await site.pod(f"pod-{number}", "correct") for number in range(6)]
    discovery = await site.discovery(nats_server)
    discovery.announce(*(pod.endpoint() for pod in pods))
    client = await site.client(await site.gateway(nats_server.url, aperture=2, identity="gateway-0"))
    made = Scene(client, discovery, pods)

    async def two() -> bool:
        return bool((await made.fleet())["totals"]["eligible"] == 2)

    await eventually(two)
    made.clients.start(4)
    await made.clients.more(50)
    assert set(await made.clients.finish()) == {200}
    states = Counter(pod["state"] for pod in (await made.fleet())["pods"])
    assert states == {"ready": 2, "unused": 4}


async def test_load_reports_over_nats_tell_of_a_pod_that_is_idle_here(site: Site, nats_server: NatsServer) -> None:
    made = await scene(site, nats_server, "correct", "correct", keepalive_ms=60_000)
    bus = await Bus.connect(nats_server.url, name="test")
    assert await bus.wait_connected(10)
    numbers = itertools.count(1)

    async def heard() -> bool:
        report = LoadReport(
            model=MODEL,
            pod="pod-0",
            sequence=next(numbers),
            sent_at=time.time(),
            started_at=1.0,
            host="127.0.0.1",
            port=made.pods[0].port,
            state=EndpointState.READY,
            running=13,
            queued=4,
            capacity=16,
            step_ms=1.0,
            digest="",
        )
        bus.publish(load_subject(MODEL, "pod-0"), report)
        return bool((await made.pod("pod-0"))["running"] == 13)

    await eventually(heard)
    made.clients.start(2)
    await made.clients.more(30)
    await made.clients.finish()
    await bus.close()
    assert (await made.pod("pod-0"))["requests"] == 0
    assert (await made.pod("pod-0"))["queued"] == 4


async def test_a_late_sentence_is_asked_of_a_second_pod_where_that_is_wanted(
    site: Site, nats_server: NatsServer
) -> None:
    made = await scene(site, nats_server, *["slow:16:0.01"] * 2, hedge=True, eject_silence_ms=60_000)
    made.clients.start(8)
    await made.clients.more(1000)
    made.pods[0].send_signal(signal.SIGSTOP)
    await made.clients.more(100)
    assert set(await made.clients.finish()) == {200}
    made.pods[0].send_signal(signal.SIGCONT)
    totals = (await made.fleet())["totals"]
    assert totals["hedges"] > 0
    assert totals["ejections"] == 0
