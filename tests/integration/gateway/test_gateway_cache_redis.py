"""Corrections that gateways remember for each other in a real Redis."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import closing

import pytest
from redis import Redis

from copydesk.gateway.cache.shared import KEY_PREFIX, MAX_KEYS, RedisCache
from copydesk.gateway.redis_link import RedisLink
from tests.fixtures.redis import RedisServer
from tests.fixtures.until import until


@pytest.fixture
async def link(redis_server: RedisServer) -> AsyncIterator[RedisLink]:
    link = RedisLink(redis_server.url, timeout=1, random=random.random)
    link.start()
    await until(lambda: link.up)
    yield link
    await link.close()


@pytest.fixture
async def cache(link: RedisLink) -> RedisCache:
    return RedisCache(link, ttl=60)


async def read(cache: RedisCache, *keys: str) -> list[bytes | None]:
    """Look these keys up in one turn of the loop."""
    values: dict[int, bytes | None] = {}
    for place, key in enumerate(keys):
        cache.read(key, lambda value, place=place: values.__setitem__(place, value))  # type: ignore[misc]
    await until(lambda: len(values) == len(keys))
    return [values[place] for place in range(len(keys))]


def commands(redis: Redis, name: str) -> int:
    """How often a command was executed."""
    stats = redis.info("commandstats")
    assert isinstance(stats, dict)
    return int(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"])


async def test_what_is_written_is_found_by_all_and_expires(link: RedisLink, redis_server: RedisServer) -> None:
    one, two = RedisCache(link, ttl=60), RedisCache(link, ttl=60)
    one.write("a", b"\x00\xff")
    assert await read(two, "a", "b") == [b"\x00\xff", None]
    with closing(Redis.from_url(redis_server.url)) as redis:
        left = redis.pttl(KEY_PREFIX + "a")
    assert isinstance(left, int)
    assert 50_000 < left <= 60_000


async def test_what_is_read_in_one_turn_is_one_mget_and_one_round_trip(
    cache: RedisCache, link: RedisLink, redis_server: RedisServer
) -> None:
    with closing(Redis.from_url(redis_server.url)) as redis:
        before = link.batches
        for number in range(20):
            cache.write(str(number), b"x")
        assert await read(cache, *(str(number) for number in range(30))) == [b"x"] * 20 + [None] * 10
        assert commands(redis, "mget") == 1
        assert link.batches - before <= 2
        await read(cache, *(str(number) for number in range(MAX_KEYS + 1)))
        assert commands(redis, "mget") == 3


async def test_without_redis_nothing_is_found_and_nothing_fails(
    cache: RedisCache, link: RedisLink, redis_server: RedisServer
) -> None:
    redis_server.freeze()
    reading = asyncio.create_task(read(cache, "a", "b"))
    await asyncio.sleep(0)
    redis_server.kill()
    assert await reading == [None, None]
    assert cache.errors == {"read": 2, "write": 0}
    assert not cache.up
    cache.write("a", b"x")
    redis_server.start()
    await until(lambda: cache.up)
    assert await read(cache, "a") == [None]


async def test_a_redis_that_takes_no_more_is_counted_and_still_read(
    cache: RedisCache, redis_server: RedisServer
) -> None:
    cache.write("a", b"x")
    assert await read(cache, "a") == [b"x"]
    with closing(Redis.from_url(redis_server.url)) as redis:
        redis.config_set("maxmemory", 1)
    cache.write("b", b"x")
    assert await read(cache, "a", "b") == [b"x", None]
    assert cache.errors["write"] == 1


async def test_writing_gives_way_when_redis_falls_behind(
    cache: RedisCache, link: RedisLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("copydesk.gateway.cache.shared.MAX_BACKLOG", 10)
    for number in range(20):
        cache.write(str(number), b"x")
    assert link.backlog == 11
    assert cache.errors["write"] == 9
