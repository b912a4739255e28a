"""The way between gateway and Redis: what Redis is for is done without it, and nobody waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from copydesk.faults import CLEAR, FaultProxy, Way, Weather
from tests.faults.conftest import failures, load, view
from tests.fixtures.nats import NatsServer
from tests.fixtures.redis import RedisServer
from tests.integration.gateway.conftest import Site, eventually

pytestmark = pytest.mark.faults


def weather(of: Weather) -> Callable[[FaultProxy], object]:
    def change(link: FaultProxy) -> None:
        link.weather = of

    return change


FAULTS: dict[str, Callable[[FaultProxy], object]] = {
    "dropped": weather(Weather.dropping()),
    "answers lost": weather(Weather.one_way(Way.FORTH)),
    "slow": weather(Weather.delayed(1.0)),
    "half-open": lambda link: link.forget(),
    "reset": lambda link: link.reset(),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_limits_and_cache_do_without_redis_when_the_way_to_it_breaks(
    site: Site, nats_server: NatsServer, redis_server: RedisServer, fault: str
) -> None:
    pod = await site.pod("pod-0")
    discovery = await site.discovery(nats_server)
    discovery.announce(pod.endpoint())
    async with FaultProxy(("127.0.0.1", redis_server.port)) as link:
        gateway = await site.gateway(
            nats_server.url,
            redis_url=f"redis://127.0.0.1:{link.port}/0",
            limit_requests_per_second=1000,
            cache="redis",
            cache_bytes=0,
        )

        async def ready() -> bool:
            return bool((await view(gateway.url))["totals"]["eligible"] == 1)

        await eventually(ready, within=60)
        assert failures(await load(gateway.url, 1.0)) == []
        loading = asyncio.create_task(load(gateway.url, 4.0))
        await asyncio.sleep(1.0)
        FAULTS[fault](link)
        assert failures(await loading) == []
        # A connection that was reset is just opened again, and is no loss.
        assert fault == "reset" or '"redis_lost"' in gateway.log()
        link.weather = CLEAR
        link.bury()

        async def back() -> bool:
            return gateway.log().count('"redis_lost"') == gateway.log().count('"redis_back"')

        await eventually(back, within=60)
        assert failures(await load(gateway.url, 1.0)) == []
