"""Rates that all gateways count together, in a real Redis that is restarted, frozen and killed."""

from __future__ import annotations

import asyncio
import random
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from copydesk.gateway.faults import ApiError
from copydesk.gateway.rates import ClosedMeter, LocalMeter, Meter, Rate, SharedMeter, rule
from copydesk.gateway.rates.shared import GCRA, KEY_PREFIX
from copydesk.gateway.redis_link import MAX_BATCH, RedisLink, RedisLostError, RedisUrlError, connection
from tests.fixtures.redis import RedisBinary, RedisServer, redis_binary
from tests.fixtures.until import until

HOURLY = Rate.of(0.001, 5)
"""So slow that during a test nothing comes back."""


class Links:
    """Makes links to Redis for one test, and closes them."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack

    async def open(self, url: str, *, timeout: float = 1.0, connected: bool = True) -> RedisLink:
        link = RedisLink(url, timeout=timeout, random=random.random)
        self._stack.push_async_callback(link.close)
        link.start()
        if connected:
            await until(lambda: link.up)
        return link


@pytest.fixture
async def links() -> AsyncIterator[Links]:
    async with AsyncExitStack() as stack:
        yield Links(stack)


def local() -> LocalMeter:
    return LocalMeter(asyncio.get_running_loop().time)


async def ask(meter: Meter, count: int, client: str = "web", rate: Rate = HOURLY) -> list[str]:
    """Ask so many times in one turn of the loop; return the codes of what was ruled."""
    rulings: list[ApiError | None] = []
    for _ in range(count):
        meter.spend(client, rate, rulings.append)
    await until(lambda: len(rulings) == count)
    return ["ok" if ruling is None else ruling.code for ruling in rulings]


def test_the_script_rules_as_the_function_does(redis_server: RedisServer) -> None:
    script = "local now = tonumber(ARGV[3])\n" + GCRA
    gaps = st.one_of(st.integers(-(10**13), 10**12), st.integers(0, 10**8), st.integers(0, 1000), st.just(0))
    # A minute and more, so that no state expires in the time that the test itself takes.
    steps = st.tuples(gaps, st.integers(60 * 10**6, 10**10), st.integers(1, 20))

    @settings(max_examples=60, suppress_health_check=list(HealthCheck))
    @given(st.lists(steps, min_size=1, max_size=60))
    def same(steps: list[tuple[int, int, int]]) -> None:
        redis.flushall()
        now, due = 1_800_000_000_000_000, 0
        for gap, interval, burst in steps:
            now += gap
            due, wait = rule(due, now, Rate(interval, burst))
            assert redis.eval(script, 1, "key", interval, burst, now) == wait
            assert redis.get("key") == str(due).encode()

    with closing(Redis.from_url(redis_server.url)) as redis:
        same()


async def test_two_gateways_share_one_limit(redis_server: RedisServer, links: Links) -> None:
    one, two = [SharedMeter(await links.open(redis_server.url), local()) for _ in range(2)]
    first, second = await asyncio.gather(ask(one, 10), ask(two, 10))
    assert (first + second).count("ok") == 5
    assert set(first + second) == {"ok", "rate_limited"}
    assert await ask(two, 3, client="other") == ["ok"] * 3


async def test_all_that_is_asked_in_one_turn_goes_out_together(redis_server: RedisServer, links: Links) -> None:
    link = await links.open(redis_server.url)
    meter = SharedMeter(link, local())
    await ask(meter, 1)
    before = link.batches
    await ask(meter, 200)
    assert link.batches == before + 1
    await ask(meter, MAX_BATCH + 1)
    assert link.batches == before + 3


async def test_a_refusal_says_when_to_come_back(redis_server: RedisServer, links: Links) -> None:
    meter = SharedMeter(await links.open(redis_server.url), local())
    rulings: list[ApiError | None] = []
    for _ in range(2):
        meter.spend("web", Rate.of(0.1, 1), rulings.append)
    await until(lambda: len(rulings) == 2)
    assert rulings[0] is None
    assert rulings[1] is not None
    assert (rulings[1].status, rulings[1].retry_after) == (429, 10)


async def test_a_state_expires_when_it_says_nothing_any_more(redis_server: RedisServer, links: Links) -> None:
    meter = SharedMeter(await links.open(redis_server.url), local())
    await ask(meter, 3, rate=Rate.of(0.01, 5))
    with closing(Redis.from_url(redis_server.url)) as redis:
        left = redis.pttl(KEY_PREFIX + "web")
    assert isinstance(left, int)
    assert 290_000 < left <= 300_000


async def test_a_redis_that_was_restarted_learns_the_script_again(redis_server: RedisServer, links: Links) -> None:
    link = await links.open(redis_server.url)
    meter = SharedMeter(link, local())
    assert await ask(meter, 8) == ["ok"] * 5 + ["rate_limited"] * 3
    redis_server.stop()
    redis_server.start()
    await until(lambda: link.up)
    assert (await ask(meter, 8)).count("ok") == 5
    with closing(Redis.from_url(redis_server.url)) as redis:
        redis.script_flush()
    assert set(await ask(meter, 3)) == {"rate_limited"}


async def test_an_idle_connection_that_redis_dropped_is_no_outage(redis_server: RedisServer, links: Links) -> None:
    link = await links.open(redis_server.url)
    meter = SharedMeter(link, ClosedMeter())
    assert await ask(meter, 1) == ["ok"]
    with closing(Redis.from_url(redis_server.url)) as redis:
        redis.client_kill_filter(_type="normal", skipme=True)
    assert await ask(meter, 2) == ["ok", "ok"]
    assert link.outages == 0


@pytest.mark.parametrize(
    ("fallback", "codes"),
    [("open", ["ok"] * 5 + ["rate_limited"]), ("closed", ["limits_unavailable"] * 6)],
)
async def test_while_redis_is_gone_the_setting_decides_and_afterwards_redis_does(
    redis_server: RedisServer, links: Links, fallback: str, codes: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    link = await links.open(redis_server.url)
    meter = SharedMeter(link, local() if fallback == "open" else ClosedMeter())
    assert await ask(meter, 1) == ["ok"]
    redis_server.kill()
    await until(lambda: not link.up)
    assert await ask(meter, 6) == codes
    redis_server.start()
    await until(lambda: link.up)
    assert await ask(meter, 6) == ["ok"] * 5 + ["rate_limited"]
    said = capsys.readouterr().out
    assert (said.count("redis_lost"), said.count("redis_back"), link.outages) == (1, 1, 1)


async def test_a_redis_that_freezes_is_waited_for_once_and_no_longer_than_said(
    redis_server: RedisServer, links: Links
) -> None:
    link = await links.open(redis_server.url, timeout=0.2)
    meter = SharedMeter(link, ClosedMeter())
    assert await ask(meter, 1) == ["ok"]
    redis_server.freeze()
    loop = asyncio.get_running_loop()
    started = loop.time()
    assert await ask(meter, 3) == ["limits_unavailable"] * 3
    assert 0.2 <= loop.time() - started < 2.0
    assert not link.up
    rulings: list[ApiError | None] = []
    meter.spend("web", HOURLY, rulings.append)
    assert len(rulings) == 1
    redis_server.thaw()
    await until(lambda: link.up)
    assert (await ask(meter, 1))[0] in ("ok", "rate_limited")


async def test_whoever_waits_when_redis_is_killed_is_told(redis_server: RedisServer, links: Links) -> None:
    link = await links.open(redis_server.url, timeout=5)
    meter = SharedMeter(link, ClosedMeter())
    redis_server.freeze()
    asked = asyncio.create_task(ask(meter, 4))
    await asyncio.sleep(0)
    redis_server.kill()
    assert await asked == ["limits_unavailable"] * 4


async def test_a_gateway_that_starts_without_redis_finds_it_later(
    redis_server: RedisServer, links: Links, capsys: pytest.CaptureFixture[str]
) -> None:
    redis_server.stop()
    link = await links.open(redis_server.url, connected=False)
    meter = SharedMeter(link, ClosedMeter())
    await until(lambda: link.outages == 1)
    assert await ask(meter, 1) == ["limits_unavailable"]
    redis_server.start()
    await until(lambda: link.up)
    assert await ask(meter, 1) == ["ok"]
    assert capsys.readouterr().out.count("redis_lost") == 1


async def test_a_redis_that_refuses_is_treated_as_one_that_is_gone_and_said_once(
    redis_server: RedisServer, links: Links, capsys: pytest.CaptureFixture[str]
) -> None:
    link = await links.open(redis_server.url)
    meter = SharedMeter(link, ClosedMeter())
    with closing(Redis.from_url(redis_server.url)) as redis:
        redis.lpush(KEY_PREFIX + "web", "not a moment")
    for _ in range(3):
        assert await ask(meter, 2) == ["limits_unavailable"] * 2
    assert await ask(meter, 1, client="other") == ["ok"]
    assert capsys.readouterr().out.count("redis_refuses") == 1
    assert link.up


async def test_a_password_opens_redis_and_appears_nowhere(
    tmp_path: Path, links: Links, capsys: pytest.CaptureFixture[str]
) -> None:
    server = RedisBinary(redis_binary(), tmp_path, password="s3cret")
    server.start()
    try:
        meter = SharedMeter(await links.open(server.url), ClosedMeter())
        assert await ask(meter, 1) == ["ok"]
        wrong = await links.open(server.url.replace("s3cret", "wr0ng"), connected=False)
        await until(lambda: wrong.outages == 1)
    finally:
        server.kill()
    said = capsys.readouterr()
    assert "redis_lost" in said.out
    assert "s3cret" not in said.out + said.err
    assert "wr0ng" not in said.out + said.err


def self_signed(directory: Path) -> Path:
    """A certificate for 127.0.0.1 with its key, in one PEM file."""
    path = directory / "both.pem"
    key = directory / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"]
    subprocess.run([*command, "-keyout", str(key), "-out", str(path)], check=True, capture_output=True)
    path.write_text(key.read_text() + path.read_text())
    return path


async def test_rediss_is_tls_and_the_certificate_is_checked(tmp_path: Path, links: Links) -> None:
    server = RedisBinary(redis_binary(), tmp_path, certificate=self_signed(tmp_path))
    server.start()
    try:
        meter = SharedMeter(await links.open(server.url), ClosedMeter())
        assert await ask(meter, 2) == ["ok", "ok"]
        unknown = await links.open(server.url.partition("?")[0], connected=False)
        await until(lambda: unknown.outages == 1)
        assert not unknown.up
    finally:
        server.kill()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:6379",
        "http://localhost",
        "redis://host:port",
        "redis://:pa/ss@host/0",
        "redis://h/0?speed=9",
    ],
)
def test_an_address_that_is_none_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(RedisUrlError) as caught:
        connection(url)
    assert "pa" not in str(caught.value).replace("password", "").replace("path", "")


async def test_what_is_no_redis_is_an_outage_not_an_end(links: Links) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        link = await links.open(f"redis://127.0.0.1:{mute.getsockname()[1]}", timeout=0.05, connected=False)
        await until(lambda: link.outages == 1)
        with pytest.raises(RedisLostError):
            await link.call("PING")


async def test_closing_tells_whoever_still_waits(redis_server: RedisServer, links: Links) -> None:
    link = await links.open(redis_server.url, timeout=5)
    redis_server.freeze()
    waiting = [asyncio.create_task(link.call("PING")) for _ in range(3)]
    await asyncio.sleep(0.01)
    waiting += [asyncio.create_task(link.call("PING"))]
    await asyncio.sleep(0)
    await link.close()
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(result) for result in results] == [RedisLostError] * 4
