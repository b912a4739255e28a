"""The gateway as a process with each of its cores, in front of a pod in this process."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator

import httpx
import pytest

from tests.fixtures.nats import NatsServer
from tests.fixtures.text_pod import TextPod, repeated
from tests.integration.gateway.conftest import GatewayProcess, Site, eventually

CHAT = {"messages": [{"role": "user", "content": "Once upon a time"}], "max_tokens": 3}
ID = {"X-Request-Id": "a"}


@pytest.fixture
async def pod() -> AsyncIterator[TextPod]:
    pod = TextPod()
    await pod.start()
    yield pod
    await pod.stop()


async def serving(
    site: Site, nats: NatsServer, pod: TextPod, core: str
) -> tuple[GatewayProcess, httpx.AsyncClient]:
    (await site.discovery(nats)).announce(pod.endpoint())
    gateway = await site.gateway(nats.url, core=core)
    client = await site.client(gateway)

    async def ready() -> bool:
        return (await client.get("/readyz")).status_code == 200

    await eventually(ready)
    return gateway, client


async def traffic(client: httpx.AsyncClient) -> tuple[list[str], dict[str, str]]:
    """What is answered, but for the time; and what is counted of the requests."""
    answers = []
    for path, body in (
        ("/v1/completions", {"prompt": "Once upon a time"}),
        ("/v1/chat/completions", CHAT),
        ("/v1/correct", {"text": "She go home."}),
        ("/v1/completions", {"prompt": ["two", "texts"]}),
        ("/v1/completions", {"prompt": "a", "max_tokens": 0}),
    ):
        for _ in range(4):
            answer = await client.post(path, json=body, headers=ID)
            answers.append(re.sub(r'"(created|latency_ms)":[0-9.]+', "", f"{answer.status_code} {answer.text}"))
    lines = (await client.get("/metrics")).text.splitlines()
    wanted = ('copydesk_gateway_requests_total{route="/v1', "copydesk_gateway_sentences_total")
    counts = dict(line.rsplit(" ", 1) for line in lines if line.startswith(wanted))
    return answers, {name: count for name, count in counts.items() if count != "0"}


async def test_both_cores_answer_and_count_alike(site: Site, nats_server: NatsServer, pod: TextPod) -> None:
    found = []
    for core in ("compiled", "python"):
        _, client = await serving(site, nats_server, pod, core)
        found.append(await traffic(client))
        carried = 'lane_requests_total{ending="answered"}' in (await client.get("/metrics")).text
        assert carried is (core == "compiled")
    assert found[0] == found[1]
    assert len(found[0][0]) == 20
    assert found[0][1]['copydesk_gateway_sentences_total{status="ok"}'] == "20"


async def test_what_the_lane_has_is_answered_before_the_process_ends(
    site: Site, nats_server: NatsServer, pod: TextPod
) -> None:
    gateway, client = await serving(site, nats_server, pod, "compiled")
    for _ in range(2):
        assert (await client.post("/v1/completions", json={"prompt": "Once"})).status_code == 200
    pod.behaviour = "hold"
    underway = asyncio.create_task(client.post("/v1/completions", json={"prompt": "Once"}))

    async def held() -> bool:
        return bool(pod.held)

    await eventually(held)
    gateway.terminate()
    await asyncio.sleep(0.1)
    ((call, task),) = pod.held
    pod.finish(call, repeated(task))
    answer = await underway
    assert (answer.status_code, answer.headers["connection"]) == (200, "close")
    assert await gateway.ended() == 0
