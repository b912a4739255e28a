"""Keys, limits and remembered corrections through whole gateways: processes, HTTP, a real Redis."""

from __future__ import annotations

import asyncio
import hashlib
import json
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from redis import Redis

from copydesk.gateway.access.sources import KEYS_HASH
from tests.fixtures.nats import NatsServer
from tests.fixtures.redis import RedisServer
from tests.integration.gateway.conftest import Site, eventually

NOWHERE = "nats://127.0.0.1:1"
KEY = {"Authorization": "Bearer k1"}


def line(name: str, key: str, words: str = "") -> str:
    return f"{name}:{hashlib.sha256(key.encode()).hexdigest()} {words}\n"


async def correct(client: httpx.AsyncClient, text: str = "She go home.", **headers: str) -> httpx.Response:
    return await client.post("/v1/correct", json={"text": text}, headers=KEY | headers)


def code(response: httpx.Response) -> str:
    return "ok" if response.status_code == 200 else str(response.json()["error"]["code"])


async def metric(client: httpx.AsyncClient, name: str) -> float:
    """The value of a sample, 0 if there is none."""
    text = (await client.get("/metrics", headers=KEY)).text
    values = [row.rpartition(" ")[2] for row in text.splitlines() if row.startswith(f"copydesk_gateway_{name} ")]
    return float(values[0]) if values else 0.0


async def ready(client: httpx.AsyncClient) -> None:
    async def is_ready() -> bool:
        return (await client.get("/readyz")).status_code == 200

    await eventually(is_ready)


def write(file: Path, *lines: str) -> None:
    file.write_text("".join(lines))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keys"


async def fleet(
    site: Site, nats: NatsServer, count: int = 1, behaviour: str = "correct", **settings: Any
) -> list[httpx.AsyncClient]:
    """Gateways over one pod, and a client of each."""
    pod = await site.pod("pod-0", behaviour)
    (await site.discovery(nats)).announce(pod.endpoint())
    clients = [await site.client(await site.gateway(nats.url, **settings)) for _ in range(count)]
    for client in clients:
        await ready(client)
    return clients


async def test_a_key_that_asks_too_often_gets_429_and_when_to_come_back(
    site: Site, nats_server: NatsServer, file: Path
) -> None:
    write(file, line("web", "k1", "requests_per_second=0.02 burst=2"))
    (client,) = await fleet(site, nats_server, api_keys_file=file)
    answers = [await correct(client) for _ in range(3)]
    assert [code(answer) for answer in answers] == ["ok", "ok", "rate_limited"]
    assert answers[2].status_code == 429
    assert 45 <= int(answers[2].headers["retry-after"]) <= 50
    assert (await client.get("/v1/models", headers=KEY)).status_code == 200
    assert await metric(client, 'refused_total{reason="rate"}') == 1


@pytest.mark.parametrize("way", ["hot", "asgi", "languagetool"])
async def test_a_key_with_too_many_underway_gets_429_until_one_ends(
    site: Site, nats_server: NatsServer, file: Path, way: str
) -> None:
    write(file, line("web", "k1", "concurrency=2"))
    (client,) = await fleet(site, nats_server, behaviour="hang", api_keys_file=file)

    async def ask() -> httpx.Response:
        if way == "languagetool":
            fields = {"text": "She go home.", "language": "en-US"}
            return await client.post("/v2/check", data=fields, headers=KEY)
        path = "/v1/correct" if way == "hot" else "/v1/correct?by=asgi"
        return await client.post(path, json={"text": "She go home."}, headers=KEY)

    underway = [asyncio.create_task(ask()) for _ in range(2)]

    async def refused() -> bool:
        answer = await asyncio.wait_for(ask(), 5)
        return answer.status_code == 429

    async def in_flight() -> bool:
        return bool((await client.get("/v1/fleet", headers=KEY)).json()["totals"]["in_flight"] >= 1)

    await eventually(in_flight)
    await eventually(refused)
    for task in underway:
        task.cancel()
    await asyncio.wait(underway)

    async def let_in_again() -> bool:
        try:
            answer = await asyncio.wait_for(ask(), 0.5)
        except TimeoutError:
            return True
        assert answer.status_code == 429
        return False

    await eventually(let_in_again)


async def test_keys_that_change_in_the_file_are_followed_without_a_restart(site: Site, file: Path) -> None:
    write(file, line("web", "k1"))
    client = await site.client(await site.gateway(NOWHERE, api_keys_file=file, api_keys_refresh_ms=20))
    assert (await client.get("/v1/models", headers=KEY)).status_code == 200
    write(file, line("web", "k2"))

    async def changed() -> bool:
        old = await client.get("/v1/models", headers=KEY)
        new = await client.get("/v1/models", headers={"Authorization": "Bearer k2"})
        return (old.status_code, new.status_code) == (401, 200)

    await eventually(changed)


async def test_two_gateways_share_limits_keys_and_corrections_and_outlive_their_redis(
    site: Site, nats_server: NatsServer, redis_server: RedisServer
) -> None:
    entry = {"name": "web", "requests_per_second": 0.001, "burst": 10}
    with closing(Redis.from_url(redis_server.url)) as redis:
        redis.hset(KEYS_HASH, hashlib.sha256(b"k1").hexdigest(), json.dumps(entry))
        one, two = await fleet(
            site, nats_server, 2, redis_url=redis_server.url, api_keys_redis="true", cache="redis",
            api_keys_refresh_ms=20,
        )  # fmt: skip
        answers = [await correct(client) for _ in range(8) for client in (one, two)]
        assert [code(answer) for answer in answers] == ["ok"] * 10 + ["rate_limited"] * 6
        assert {answer.json()["corrected"] for answer in answers[:10]} == {"She goes home."}
        misses = [await metric(client, 'cache_lookups_total{result="miss"}') for client in (one, two)]
        found = [await metric(client, 'cache_lookups_total{result="redis"}') for client in (one, two)]
        assert (sum(misses), sum(found)) == (1, 1)
    redis_server.kill()

    async def lost() -> bool:
        return await metric(one, "redis_up") == 0

    await eventually(lost)
    assert code(await correct(one)) == "ok"
    assert code(await correct(one, Authorization="Bearer k2")) == "invalid_api_key"


async def test_a_closed_gateway_refuses_limited_keys_without_redis_until_it_is_back(
    site: Site, nats_server: NatsServer, redis_server: RedisServer, file: Path
) -> None:
    write(file, line("web", "k1", "requests_per_second=100"), line("free", "k2"))
    (client,) = await fleet(
        site,
        nats_server,
        redis_url=redis_server.url,
        redis_lost="closed",
        api_keys_file=file,
        redis_timeout_ms=200,
    )

    async def answered(wanted: str) -> bool:
        return code(await correct(client)) == wanted

    await eventually(lambda: answered("ok"))
    redis_server.freeze()
    refused = await correct(client)
    assert (refused.status_code, code(refused)) == (503, "limits_unavailable")
    assert refused.headers["retry-after"] == "1"
    assert code(await correct(client, Authorization="Bearer k2")) == "ok"
    redis_server.thaw()
    await eventually(lambda: answered("ok"))


async def test_keys_in_redis_that_was_never_there_are_neither_right_nor_wrong(
    site: Site, redis_server: RedisServer
) -> None:
    redis_server.kill()
    client = await site.client(await site.gateway(NOWHERE, redis_url=redis_server.url, api_keys_redis="true"))
    answer = await client.get("/v1/models", headers=KEY)
    assert (answer.status_code, code(answer)) == (503, "keys_unavailable")
    assert (await client.get("/v1/models")).status_code == 401
    assert "keys" in (await client.get("/readyz")).json()["status"]
    assert (await client.get("/healthz")).status_code == 200


async def test_a_redis_address_that_is_none_is_one_line_that_hides_it(site: Site) -> None:
    gateway = site.unstarted(nats_url=NOWHERE, redis_url="redis://:pa/ss@host")
    await gateway.spawn()
    assert await gateway.ended() == 2
    (line,) = gateway.log().splitlines()
    assert line.startswith("COPYDESK_GATEWAY_REDIS_URL=(hidden)")
    assert "pa/" not in line


async def test_keys_in_redis_without_a_redis_are_refused_at_the_start(site: Site) -> None:
    gateway = site.unstarted(nats_url=NOWHERE, api_keys_redis="true")
    await gateway.spawn()
    assert await gateway.ended() == 2
    assert "COPYDESK_GATEWAY_REDIS_URL is needed" in gateway.log()
