"""The way between gateway and pod: slow, narrow, silent in both directions or one, half-open, cut.

Pods here have no model; the gateway is the real process.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx
import msgspec
import pytest

from copydesk.faults import CLEAR, FaultProxy, Way, Weather
from tests.faults.conftest import failures, load, view, whole
from tests.fixtures.nats import NatsServer
from tests.integration.gateway.conftest import Site, eventually

pytestmark = pytest.mark.faults

STRUCK_S = 5.0


@dataclass
class Scene:
    """A gateway with two pods, a proxy before the second of them."""

    url: str
    link: FaultProxy

    async def pod(self) -> dict[str, object]:
        (found,) = [pod for pod in (await view(self.url))["pods"] if pod["id"] == "pod-1"]
        return dict(found)

    async def whole(self) -> bool:
        return whole(await view(self.url))


@asynccontextmanager
async def scene(site: Site, nats: NatsServer) -> AsyncIterator[Scene]:
    pods = [await site.pod(f"pod-{number}", "slow:16:0.02") for number in range(2)]
    async with FaultProxy(("127.0.0.1", pods[1].port)) as link:
        discovery = await site.discovery(nats)
        discovery.announce(pods[0].endpoint(), msgspec.structs.replace(pods[1].endpoint(), port=link.port))
        made = Scene((await site.gateway(nats.url)).url, link)
        await eventually(made.whole, within=60)
        yield made


def weather(of: Weather) -> Callable[[FaultProxy], object]:
    def change(link: FaultProxy) -> None:
        link.weather = of

    return change


SILENT: dict[str, Callable[[FaultProxy], object]] = {
    "dropped": weather(Weather.dropping()),
    "answers lost": weather(Weather.one_way(Way.FORTH)),
    "requests lost": weather(Weather.one_way(Way.BACK)),
    "half-open": lambda link: link.forget(),
}
WORSE: dict[str, Callable[[FaultProxy], object]] = {
    "delayed": weather(Weather.delayed(0.2)),
    "narrow": weather(Weather.narrow(4000.0)),
    "reset": lambda link: link.reset(),
}


@pytest.mark.parametrize("fault", SILENT)
async def test_a_pod_that_cannot_be_heard_is_left_out_no_request_fails_and_it_comes_back(
    site: Site, nats_server: NatsServer, fault: str
) -> None:
    async with scene(site, nats_server) as made:
        loading = asyncio.create_task(load(made.url, 1.0 + STRUCK_S))
        await asyncio.sleep(1.0)
        SILENT[fault](made.link)

        async def left_out() -> bool:
            return (await made.pod())["state"] != "ready"

        await eventually(left_out, within=30)
        assert failures(await loading) == []
        made.link.weather = CLEAR
        made.link.bury()
        await eventually(made.whole, within=60)
        assert failures(await load(made.url, 2.0)) == []
        await eventually(lambda: nothing_in_flight(made.url))


@pytest.mark.parametrize("fault", WORSE)
async def test_a_pod_that_is_hard_to_reach_fails_no_request_and_is_whole_afterwards(
    site: Site, nats_server: NatsServer, fault: str
) -> None:
    async with scene(site, nats_server) as made:
        loading = asyncio.create_task(load(made.url, 1.0 + STRUCK_S))
        await asyncio.sleep(1.0)
        WORSE[fault](made.link)
        assert failures(await loading) == []
        made.link.weather = CLEAR
        await eventually(made.whole, within=60)
        await eventually(lambda: nothing_in_flight(made.url))


async def nothing_in_flight(url: str) -> bool:
    async with httpx.AsyncClient(base_url=url, trust_env=False) as client:
        return bool((await client.get("/v1/fleet")).json()["totals"]["in_flight"] == 0)
