"""Clients that are slow, silent, or far too many: the others are served meanwhile, and nothing of it stays.

Ten thousand connections take as many descriptors here and in the gateway: `ulimit -Hn` must be 12,000 or more.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import psutil
import pytest

from tests.faults.conftest import failures, load, view
from tests.fixtures.nats import NatsServer
from tests.integration.gateway.conftest import GatewayProcess, Site, eventually

pytestmark = pytest.mark.faults

IDLE = 10_000
DESCRIPTORS = IDLE + 2_000
CONNECTS, CONNECTS_S = 1_000, 3
SLOW, BODY_TIMEOUT_MS = 200, 1_500
PIPELINED = 5_000
RATE = 20.0
MIB = 1 << 20

CORRECT = b'{"text": "She go home."}'
REQUEST = b"POST /v1/correct HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
CORRECTION = REQUEST + b"Content-Length: %d\r\n\r\n" % len(CORRECT) + CORRECT
METRICS = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"


@dataclass
class Served:
    """A gateway with a pod, and what the process held before anybody was bad to it."""

    gateway: GatewayProcess
    process: psutil.Process
    descriptors: int
    memory: int

    @property
    def port(self) -> int:
        return self.gateway.port

    @property
    def grown(self) -> float:
        """MiB of memory beyond what it had."""
        return float(self.process.memory_info().rss - self.memory) / MIB

    async def as_before(self) -> bool:
        """Whether nothing is in flight and no more descriptors are open, but for those of a few connections."""
        in_flight = (await view(self.gateway.url))["totals"]["in_flight"]
        return bool(in_flight == 0 and self.process.num_fds() <= self.descriptors + 10)


@pytest.fixture(autouse=True)
def many_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, DESCRIPTORS), max(hard, DESCRIPTORS)))
    except ValueError:  # only root may raise it
        pytest.fail(f"`ulimit -Hn` is {hard}: raise it to {DESCRIPTORS} to try so many connections")
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
async def served(site: Site, nats_server: NatsServer) -> Served:
    pod = await site.pod("pod-0", "slow:16:0.02")
    discovery = await site.discovery(nats_server)
    discovery.announce(pod.endpoint())
    gateway = await site.gateway(nats_server.url, body_timeout_ms=BODY_TIMEOUT_MS)

    async def ready() -> bool:
        return bool((await view(gateway.url))["totals"]["eligible"] == 1)

    await eventually(ready, within=60)
    assert failures(await load(gateway.url, 1.0, RATE)) == []
    process = psutil.Process(gateway.pid)
    return Served(gateway, process, process.num_fds(), process.memory_info().rss)


@asynccontextmanager
async def others_are_served(at: Served, seconds: float) -> AsyncIterator[None]:
    """While this is done, and for so long at least, no request of anybody else fails."""
    loading = asyncio.create_task(load(at.gateway.url, seconds, RATE))
    try:
        yield
    finally:
        samples = await loading
    assert failures(samples) == []


class Crowd:
    """Connections that are held open."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._sockets: list[socket.socket] = []

    async def come(self, count: int) -> None:
        """Connect so many more, some at a time."""
        loop = asyncio.get_running_loop()
        for number in range(count):
            one = socket.socket()
            one.setblocking(False)
            await loop.sock_connect(one, ("127.0.0.1", self._port))
            self._sockets.append(one)
            if number % 100 == 0:
                await asyncio.sleep(0.01)

    def leave(self) -> None:
        """Close all."""
        for one in self._sockets:
            one.close()


async def test_ten_thousand_connections_that_say_nothing(served: Served) -> None:
    crowd = Crowd(served.port)
    async with others_are_served(served, 6.0):
        await crowd.come(IDLE)
    # Those of the load before, of which some may have ended since.
    assert served.process.num_fds() - served.descriptors >= IDLE - 10
    assert served.grown < 30 * IDLE / 1024, "30 KiB a connection"
    async with others_are_served(served, 2.0):
        crowd.leave()
    await eventually(served.as_before, within=60)


async def test_a_thousand_connections_a_second(served: Served) -> None:
    answers: Counter[bytes] = Counter()

    async def call(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        if number % 2:
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            answers[(await reader.read()).split(b"\r\n")[0]] += 1
        writer.close()
        await writer.wait_closed()

    async with others_are_served(served, CONNECTS_S), asyncio.TaskGroup() as group:
        for number in range(CONNECTS * CONNECTS_S):
            group.create_task(call(number))
            await asyncio.sleep(1.0 / CONNECTS)
    assert answers == {b"HTTP/1.1 200 OK": CONNECTS * CONNECTS_S / 2}
    await eventually(served.as_before, within=60)


async def test_bodies_that_trickle_in_are_ended(served: Served) -> None:
    async def trickle() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(REQUEST + b"Content-Length: 1000\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            while not reader.at_eof() and not reader._buffer:  # type: ignore[attr-defined]
                writer.write(b" ")
                await asyncio.sleep(0.2)
        answer = await reader.read()
        writer.close()
        return answer

    async with others_are_served(served, 4.0):
        answers = await asyncio.gather(*(trickle() for _ in range(SLOW)))
    assert Counter(answer.split(b"\r\n")[0] for answer in answers) == {b"HTTP/1.1 408 Request Timeout": SLOW}
    await eventually(served.as_before, within=60)


@pytest.mark.parametrize(
    ("asked", "deaf"),
    [
        pytest.param(CORRECTION + METRICS, 50, id="corrections and metrics"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n" * 10, 50, id="the shortest"),
        pytest.param(b"POST /v1/correct HTTP/1.1\r\nContent-Length: 0\r\n\r\n" * 4, 8, id="refused at once"),
    ],
)
async def test_clients_that_never_read_what_they_asked_for(served: Served, asked: bytes, deaf: int) -> None:
    async def ask() -> asyncio.StreamWriter:
        _, writer = await asyncio.open_connection("127.0.0.1", served.port, limit=1)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(4.0):
                for _ in range(PIPELINED):
                    writer.write(asked)
                    await writer.drain()
        return writer

    async with others_are_served(served, 6.0):
        writers = await asyncio.gather(*(ask() for _ in range(deaf)))
    assert served.grown < deaf * 3, (
        "3 MiB a connection: what one read has brought, little of it parsed, and no second one"
    )
    for writer in writers:
        writer.transport.abort()
    await eventually(served.as_before, within=60)
