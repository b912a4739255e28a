"""The gateway while pods die, drain and come back, while NATS is gone, and while it is itself told to stop."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from dataclasses import dataclass, field

import httpx

from tests.fixtures.nats import NatsServer
from tests.integration.gateway.conftest import Discovery, GatewayProcess, PodProcess, Site, eventually


@dataclass
class Load:
    """Clients that correct one text after another, and what they got."""

    client: httpx.AsyncClient
    results: Counter[object] = field(default_factory=Counter)
    running: bool = True
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def start(self, clients: int) -> None:
        self.tasks = [asyncio.create_task(self._run(number)) for number in range(clients)]

    async def finish(self) -> Counter[object]:
        self.running = False
        await asyncio.gather(*self.tasks)
        return self.results

    async def more(self, count: int) -> None:
        """Wait until so many more answers have come."""
        target = self.results.total() + count

        async def reached() -> bool:
            return self.results.total() >= target

        await eventually(reached)

    async def _run(self, number: int) -> None:
        while self.running:
            try:
                response = await self.client.post("/v1/correct", json={"text": f"Client {number} go home."})
            except httpx.ConnectError:
                self.results["refused"] += 1
                return
            except httpx.HTTPError as error:
                self.results[repr(error)] += 1
                continue
            good = response.status_code == 200 and response.json()["corrected"] == f"Client {number} goes home."
            self.results["ok" if good else f"{response.status_code} {response.text}"] += 1


async def serving(
    site: Site, nats: NatsServer, *behaviours: str, **settings: object
) -> tuple[GatewayProcess, httpx.AsyncClient, Discovery, list[PodProcess]]:
    pods = [await site.pod(f"pod-{number}", behaviour) for number, behaviour in enumerate(behaviours)]
    discovery = await site.discovery(nats)
    discovery.announce(*(pod.endpoint() for pod in pods))
    gateway = await site.gateway(nats.url, **settings)
    client = await site.client(gateway)
    await eventually(lambda: eligible(client, len(pods)))
    return gateway, client, discovery, pods


async def eligible(client: httpx.AsyncClient, count: int) -> bool:
    fleet = (await client.get("/v1/fleet")).json()
    return bool(fleet["totals"]["eligible"] == count)


async def test_killing_one_of_two_pods_under_load_fails_no_request(site: Site, nats_server: NatsServer) -> None:
    _, client, _, pods = await serving(site, nats_server, "slow", "slow")
    load = Load(client)
    load.start(24)
    await load.more(48)
    pods[0].send_signal(signal.SIGKILL)
    await load.more(100)
    await pods[0].ended()
    await pods[0].start()
    await eventually(lambda: eligible(client, 2))
    await load.more(48)
    results = await load.finish()
    assert set(results) == {"ok"}, results
    fleet = (await client.get("/v1/fleet")).json()
    assert fleet["totals"]["retries"] > 0
    assert fleet["totals"]["in_flight"] == 0


async def test_a_pod_that_drains_under_load_ends_cleanly_and_fails_no_request(
    site: Site, nats_server: NatsServer
) -> None:
    _, client, discovery, pods = await serving(site, nats_server, "slow", "slow")
    load = Load(client)
    load.start(16)
    await load.more(32)
    pods[0].send_signal(signal.SIGTERM)
    assert await pods[0].ended() == 0
    discovery.announce(pods[1].endpoint())
    await load.more(64)
    results = await load.finish()
    assert set(results) == {"ok"}, results


async def test_with_all_pods_gone_the_answer_is_503_until_one_is_back(site: Site, nats_server: NatsServer) -> None:
    _, client, _, pods = await serving(site, nats_server, "correct", endpoint_wait_ms=100)
    pods[0].send_signal(signal.SIGKILL)
    await pods[0].ended()
    await eventually(lambda: eligible(client, 0))
    response = await client.post("/v1/correct", json={"text": "I go out."})
    assert (response.status_code, response.json()["error"]["code"]) == (503, "no_endpoints")
    assert response.headers["retry-after"] == "1"
    assert (await client.get("/readyz")).status_code == 503
    await pods[0].start()
    await eventually(lambda: eligible(client, 1))
    assert (await client.post("/v1/correct", json={"text": "I go out."})).status_code == 200
    assert (await client.get("/readyz")).status_code == 200


async def test_requests_go_on_without_nats_and_changes_are_followed_once_it_is_back(
    site: Site, nats_server: NatsServer
) -> None:
    _, client, discovery, pods = await serving(site, nats_server, "correct", "correct")
    load = Load(client)
    load.start(4)

    async def discovery_lost() -> bool:
        return not (await client.get("/v1/fleet")).json()["discovery_connected"]

    nats_server.stop()
    await eventually(discovery_lost)
    await load.more(200)
    assert await eligible(client, 2)
    nats_server.start()
    discovery.announce(pods[1].endpoint())
    await eventually(lambda: eligible(client, 1))
    results = await load.finish()
    assert set(results) == {"ok"}, results


async def test_sigterm_answers_what_was_accepted_and_exits_with_0(site: Site, nats_server: NatsServer) -> None:
    gateway, client, _, _ = await serving(site, nats_server, "slow")
    long = {"texts": [f"Text {number} go on." for number in range(100)]}
    accepted = [asyncio.create_task(client.post("/v1/correct", json=long)) for _ in range(6)]

    async def underway() -> bool:
        return bool((await client.get("/v1/fleet")).json()["totals"]["in_flight"] >= 6)

    await eventually(underway)
    gateway.terminate()
    responses = await asyncio.gather(*accepted)
    assert [response.status_code for response in responses] == [200] * 6
    assert await gateway.ended() == 0, gateway.log()
    assert "gateway_stopped" in gateway.log()


async def test_sigterm_under_load_drops_no_connection(site: Site, nats_server: NatsServer) -> None:
    gateway, client, _, _ = await serving(site, nats_server, "slow")
    load = Load(client)
    load.start(16)
    await load.more(32)
    gateway.terminate()
    assert await gateway.ended() == 0
    results = await load.finish()
    assert set(results) == {"ok", "refused"}, results


async def test_a_client_that_leaves_frees_the_pods(site: Site, nats_server: NatsServer) -> None:
    _, client, _, _ = await serving(site, nats_server, "hang")

    async def in_flight(count: int) -> bool:
        return bool((await client.get("/v1/fleet")).json()["totals"]["in_flight"] == count)

    texts = {"texts": [f"Text {number} go on." for number in range(5)]}
    leaving = asyncio.create_task(client.post("/v1/correct", json=texts))
    await eventually(lambda: in_flight(5))
    leaving.cancel()
    await eventually(lambda: in_flight(0))
