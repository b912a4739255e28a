"""A gateway in this process, with pods in this process, and no NATS: the test is the discovery."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack

import pytest

from copydesk.common.messages import Endpoint, EndpointsSnapshot
from copydesk.gateway.service import Gateway
from copydesk.gateway.settings import GatewaySettings
from tests.fixtures.fake_pod import MODEL, FakePod

_generations = itertools.count(1)


def snapshot(*endpoints: Endpoint, epoch: int = 1, generation: int | None = None) -> EndpointsSnapshot:
    """A snapshot newer than any before, unless said otherwise."""
    number = next(_generations) if generation is None else generation
    return EndpointsSnapshot(model=MODEL, epoch=epoch, generation=number, sent_at=0.0, endpoints=endpoints)


async def eventually(condition: Callable[[], object], within: float = 5.0) -> None:
    """Return as soon as `condition` holds; fail if it does not in time."""
    async with asyncio.timeout(within):
        while not condition():  # noqa: ASYNC110 - what is waited for is plain data of another object
            await asyncio.sleep(0.002)


class Desk:
    """Makes gateways and pods for one test, and ends them."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack

    async def pod(
        self, name: str, behaviour: str = "correct", *, port: int = 0, kind: type[FakePod] = FakePod
    ) -> FakePod:
        """Start a pod."""
        pod = await kind(name, behaviour).start(port)
        self._stack.push_async_callback(pod.stop)
        return pod

    async def gateway(self, *pods: FakePod, **settings: object) -> Gateway:
        """A gateway that knows `pods` and is connected to them."""
        gateway = Gateway(GatewaySettings(**{"endpoint_wait_ms": 200, "keepalive_ms": 50} | settings))  # type: ignore[arg-type]
        self._stack.push_async_callback(gateway.close)
        if pods:
            gateway.fleet.apply(snapshot(*(pod.endpoint() for pod in pods)))
            await eventually(lambda: len(gateway.fleet.eligible) == len(pods))
        return gateway


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    async with AsyncExitStack() as stack:
        yield Desk(stack)
