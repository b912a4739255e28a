"""The gateway as a process, pods as processes, a real NATS; the test publishes what discovery would."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from copydesk.common.bus import Bus
from copydesk.common.messages import Endpoint, EndpointsSnapshot, EndpointState, endpoints_subject
from tests.fixtures.fake_pod import MODEL
from tests.fixtures.nats import NatsServer

START_SECONDS = 60.0


async def eventually(condition: Callable[[], Coroutine[Any, Any, object]], within: float = 15.0) -> None:
    """Return as soon as `condition` holds; fail if it does not in time."""
    async with asyncio.timeout(within):
        while not await condition():  # noqa: ASYNC110 - what is waited for is in another process
            await asyncio.sleep(0.02)


class PodProcess:
    """`tests.fixtures.fake_pod` as a process of its own, to be killed."""

    def __init__(self, name: str, behaviour: str) -> None:
        self.name = name
        self.port = 0
        self._behaviour = behaviour
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> PodProcess:
        """Start it on its port, or on a free one the first time."""
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.fixtures.fake_pod",
            self.name,
            str(self.port),
            self._behaviour,
            stdout=asyncio.subprocess.PIPE,
        )
        assert self._process.stdout is not None
        async with asyncio.timeout(START_SECONDS):
            self.port = int(await self._process.stdout.readline())
        return self

    def send_signal(self, signum: signal.Signals) -> None:
        """Send it a signal."""
        assert self._process is not None
        self._process.send_signal(signum)

    async def ended(self) -> int:
        """Wait for its end, and return its status."""
        assert self._process is not None
        async with asyncio.timeout(15):
            return await self._process.wait()

    async def counts(self) -> dict[str, int]:
        """Have it end in order, and return what it has counted."""
        assert self._process is not None
        assert self._process.stdout is not None
        self._process.terminate()
        async with asyncio.timeout(15):
            told = await self._process.stdout.read()
        return {str(name): int(count) for name, count in json.loads(told.splitlines()[-1]).items()}

    async def close(self) -> None:
        """End it, however it is."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    def endpoint(self, state: EndpointState = EndpointState.READY) -> Endpoint:
        """What discovery would say of it."""
        return Endpoint(id=self.name, host="127.0.0.1", port=self.port, state=state)


class Discovery:
    """Publishes its list again and again, as EDS does."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._epoch = time.time_ns() // 1_000_000
        self._generation = 0
        self._endpoints: tuple[Endpoint, ...] = ()
        self._task = asyncio.create_task(self._publish())

    def announce(self, *endpoints: Endpoint) -> None:
        """Say from now on that these are the pods."""
        self._endpoints = endpoints
        self._generation += 1

    async def close(self) -> None:
        """Say nothing more."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        await self._bus.close()

    async def _publish(self) -> None:
        while True:
            snapshot = EndpointsSnapshot(
                model=MODEL,
                epoch=self._epoch,
                generation=self._generation,
                sent_at=time.time(),
                endpoints=self._endpoints,
            )
            if self._generation:
                self._bus.publish(endpoints_subject(MODEL), snapshot)
            await asyncio.sleep(0.1)


class GatewayProcess:
    """`python -m copydesk.gateway`."""

    def __init__(self, log: Path, **settings: object) -> None:
        self._log = log
        self._environment = {
            name: value for name, value in os.environ.items() if not name.startswith("COPYDESK_GATEWAY_")
        } | {f"COPYDESK_GATEWAY_{name.upper()}": str(value) for name, value in settings.items()}
        self._process: asyncio.subprocess.Process | None = None
        self.port = 0

    @property
    def url(self) -> str:
        """Where it serves."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Its process."""
        assert self._process is not None
        return self._process.pid

    async def spawn(self) -> None:
        """Start the process, and do not wait for it to serve."""
        with self._log.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "copydesk.gateway", env=self._environment, stderr=log
            )

    async def start(self) -> GatewayProcess:
        """Start the process, and wait until it says where it listens."""
        await self.spawn()
        await eventually(self._listens, within=START_SECONDS)
        return self

    async def _listens(self) -> bool:
        assert self._process is not None
        if self._process.returncode is not None:
            pytest.fail(f"the gateway ended:\n{self.log()}")
        lines = [
            json.loads(line) for line in self.log().splitlines() if line.startswith("{") and line.endswith("}")
        ]
        self.port = next((line["port"] for line in lines if line["event"] == "gateway_listening"), 0)
        return self.port != 0

    def log(self) -> str:
        """What it wrote to standard error."""
        return self._log.read_text()

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def send_signal(self, signum: signal.Signals) -> None:
        """Send it a signal."""
        assert self._process is not None
        self._process.send_signal(signum)

    async def ended(self) -> int:
        """Wait for its end, and return its status."""
        assert self._process is not None
        async with asyncio.timeout(20):
            return await self._process.wait()

    async def close(self) -> None:
        """End it, however it is."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


class Site:
    """Makes the processes of one test, and ends them."""

    def __init__(self, stack: AsyncExitStack, directory: Path) -> None:
        self._stack = stack
        self._directory = directory
        self._gateways = 0

    async def pod(self, name: str, behaviour: str = "correct") -> PodProcess:
        """Start a pod."""
        pod = PodProcess(name, behaviour)
        self._stack.push_async_callback(pod.close)
        return await pod.start()

    async def discovery(self, nats: NatsServer) -> Discovery:
        """Start to publish."""
        discovery = Discovery(await Bus.connect(nats.url, name="test"))
        self._stack.push_async_callback(discovery.close)
        return discovery

    def unstarted(self, **settings: object) -> GatewayProcess:
        """A gateway that is not started yet, on a free port unless said otherwise."""
        self._gateways += 1
        log = self._directory / f"gateway-{self._gateways}.log"
        gateway = GatewayProcess(log, **{"port": 0} | settings)
        self._stack.push_async_callback(gateway.close)
        return gateway

    async def gateway(self, nats_url: str, **settings: object) -> GatewayProcess:
        """Start a gateway."""
        return await self.unstarted(nats_url=nats_url, **settings).start()

    async def client(self, gateway: GatewayProcess) -> httpx.AsyncClient:
        """An HTTP client of the gateway."""
        limits = httpx.Limits(max_connections=64, max_keepalive_connections=64)
        # There is no TLS, and to read the authorities of the machine takes longer than most tests.
        client = httpx.AsyncClient(base_url=gateway.url, timeout=20, limits=limits, verify=False)
        self._stack.push_async_callback(client.aclose)
        return client


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        yield Site(stack, tmp_path)
