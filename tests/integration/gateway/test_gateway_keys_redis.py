"""API keys in a real Redis: read again and again, and in force while it is away."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from redis import Redis

from copydesk.gateway.access import Gatekeeper, KeyFile, KeyWatch, RedisKeys
from copydesk.gateway.access.sources import KEYS_HASH
from copydesk.gateway.faults import ApiError
from copydesk.gateway.keys import KeyLimits
from copydesk.gateway.rates import ClosedMeter
from copydesk.gateway.redis_link import RedisLink
from tests.fixtures.redis import RedisServer
from tests.fixtures.until import until


def digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


class Registry:
    """Who writes the keys."""

    def __init__(self, redis: Redis) -> None:
        self.redis = redis

    def put(self, key: str, **fields: object) -> None:
        self.redis.hset(KEYS_HASH, digest(key), json.dumps(fields))

    def drop(self, key: str) -> None:
        self.redis.hdel(KEYS_HASH, digest(key))


@pytest.fixture
def registry(redis_server: RedisServer) -> Iterator[Registry]:
    with closing(Redis.from_url(redis_server.url)) as redis:
        yield Registry(redis)


@pytest.fixture
async def link(redis_server: RedisServer) -> AsyncIterator[RedisLink]:
    link = RedisLink(redis_server.url, timeout=1, random=random.random)
    link.start()
    await until(lambda: link.up)
    yield link
    await link.close()


def let_in(gatekeeper: Gatekeeper, *keys: str) -> list[str]:
    """The names that these keys are let in by, or the codes that they are refused with."""
    names = []
    for key in keys:
        try:
            names.append(gatekeeper.check(f"Bearer {key}"))
        except ApiError as error:
            names.append(error.code)
    return names


async def test_keys_come_and_go_with_the_hash(link: RedisLink, registry: Registry) -> None:
    gatekeeper = Gatekeeper(ClosedMeter())
    watch = KeyWatch(gatekeeper, None, RedisKeys(link), interval=1)
    assert let_in(gatekeeper, "k1") == ["keys_unavailable"]
    registry.put("k1", name="web")
    registry.put("k2", name="batch", requests_per_second=0.5, burst=2, concurrency=3, colour="blue")
    registry.put("k3", name="old", disabled=True)
    await watch.look()
    assert let_in(gatekeeper, "k1", "k2", "k3") == ["web", "batch", "invalid_api_key"]
    assert gatekeeper.ring is not None
    limits = gatekeeper.ring.limits["batch"]
    assert (limits.requests_per_second, limits.burst, limits.concurrency) == (0.5, 2, 3)
    assert (gatekeeper.limited("web"), gatekeeper.limited("batch")) == (False, True)
    registry.drop("k1")
    registry.put("k3", name="new")
    await watch.look()
    assert let_in(gatekeeper, "k1", "k2", "k3") == ["invalid_api_key", "batch", "new"]


async def test_thousands_of_keys_are_read_in_pages(link: RedisLink, registry: Registry) -> None:
    with registry.redis.pipeline() as pipeline:
        for number in range(5000):
            pipeline.hset(KEYS_HASH, digest(f"k{number}"), json.dumps({"name": f"client-{number}"}))
        pipeline.execute()
    keys = RedisKeys(link)
    await keys.look()
    assert keys.ring is not None
    assert len(keys.ring.digests) == 5000
    ring = keys.ring
    await keys.look()
    assert keys.ring is ring


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (digest("k2"), "no json"),
        (digest("k2"), "{}"),
        (digest("k2"), '{"name": "a b"}'),
        (digest("k2"), '{"name": "web", "burst": 0}'),
        (digest("k2"), '{"name": "web", "requests_per_second": "5"}'),
        ("short", '{"name": "web"}'),
        ("x" * 64, '{"name": "web"}'),
        (b"\xff" * 64, b"\xff"),
    ],
)
async def test_an_entry_that_is_none_is_named_once_and_spoils_no_other(
    link: RedisLink,
    registry: Registry,
    field: str | bytes,
    value: str | bytes,
    capsys: pytest.CaptureFixture[str],
) -> None:
    registry.put("k1", name="web")
    registry.redis.hset(KEYS_HASH, field, value)
    gatekeeper = Gatekeeper(ClosedMeter())
    watch = KeyWatch(gatekeeper, None, RedisKeys(link), interval=1)
    for _ in range(3):
        await watch.look()
    assert let_in(gatekeeper, "k1", "k2") == ["web", "invalid_api_key"]
    assert capsys.readouterr().out.count("redis_key_unusable") == 1


async def test_a_field_that_no_key_has_is_named_since_a_misspelt_limit_is_none(
    link: RedisLink, registry: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    registry.put("k1", name="web", request_per_second=5)
    keys = RedisKeys(link)
    for _ in range(2):
        await keys.look()
    assert keys.ring is not None
    assert keys.ring.name_of("k1") == "web"
    told = [line for line in capsys.readouterr().out.splitlines() if "redis_key_unusable" in line]
    assert len(told) == 1
    assert "'request_per_second' is no field of a key" in told[0]


async def test_keys_stay_in_force_while_redis_is_away_and_when_it_comes_back_empty(
    link: RedisLink, registry: Registry, redis_server: RedisServer
) -> None:
    registry.put("k1", name="web")
    gatekeeper = Gatekeeper(ClosedMeter())
    watch = KeyWatch(gatekeeper, None, RedisKeys(link), interval=1)
    await watch.look()
    redis_server.kill()
    await watch.look()
    assert not link.up
    assert let_in(gatekeeper, "k1", "k2") == ["web", "invalid_api_key"]
    redis_server.start()
    await until(lambda: link.up)
    await watch.look()
    assert let_in(gatekeeper, "k1") == ["web"]
    registry.put("k2", name="new")
    await watch.look()
    assert let_in(gatekeeper, "k1", "k2") == ["invalid_api_key", "new"]


async def test_keys_of_a_file_and_of_redis_are_both_let_in(
    link: RedisLink, registry: Registry, tmp_path: Path
) -> None:
    file = tmp_path / "keys"
    file.write_text(f"desk:{digest('k0')} burst=7\n")
    gatekeeper = Gatekeeper(ClosedMeter())
    watch = KeyWatch(gatekeeper, KeyFile(file), RedisKeys(link), interval=1)
    registry.put("k1", name="web")
    await watch.look()
    assert let_in(gatekeeper, "k0", "k1", "k2") == ["desk", "web", "invalid_api_key"]
    assert gatekeeper.ring is not None
    assert gatekeeper.ring.limits["desk"] == KeyLimits(burst=7)
