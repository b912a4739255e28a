"""A gateway with the compiled lane in this process, served over real sockets, with pods that obey the test."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from copydesk.common.rpc import InboundCall
from copydesk.common.tasks import GenerateText
from copydesk.gateway.app import build_app, build_hot_path
from copydesk.gateway.keys import KeyRing
from copydesk.gateway.server import Server, listen
from copydesk.gateway.service import Gateway
from copydesk.gateway.settings import GatewaySettings
from tests.fixtures.fake_pod import FakePod
from tests.fixtures.text_pod import TextPod, repeated
from tests.unit.gateway.conftest import eventually, snapshot

PATH = "/v1/completions"
Held = tuple[TextPod, InboundCall, GenerateText]


@dataclass
class Answer:
    """What a client reads."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        """The text of a completion."""
        return str(json.loads(self.body)["choices"][0]["text"])

    @property
    def code(self) -> str:
        """The code of an error."""
        return str(json.loads(self.body)["error"]["code"])


def ask_for(prompt: str, *lines: str, path: str = PATH, **more: object) -> bytes:
    """The bytes of a request."""
    what: dict[str, object] = {"prompt": prompt}
    if path == "/v1/chat/completions":
        what = {"messages": [{"role": "user", "content": prompt}]}
    if path == "/v1/correct":
        what = {"text": prompt}
    body = json.dumps(what | more).encode()
    fields = [f"POST {path} HTTP/1.1", "Host: x", "Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*fields, *lines, "", ""]).encode() + body


class Client:
    """A connection that sends exactly the bytes it is told."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        """Write, and do not wait."""
        self.writer.write(data)

    async def answer(self, within: float = 10.0) -> Answer:
        """Read an answer."""
        async with asyncio.timeout(within):
            top = (await self.reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = top.strip().split("\r\n")
            headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
            if headers.get("transfer-encoding") == "chunked":
                body = await self.reader.readuntil(b"0\r\n\r\n")
            else:
                body = await self.reader.readexactly(int(headers.get("content-length", 0)))
        return Answer(int(first.split()[1]), headers, body)

    async def ask(self, prompt: str, *lines: str, **how: Any) -> Answer:
        """Send a request and read its answer."""
        self.send(ask_for(prompt, *lines, **how))
        return await self.answer()

    async def closed(self) -> bool:
        """Whether nothing more comes."""
        async with asyncio.timeout(10):
            return await self.reader.read() == b""

    def leave(self) -> None:
        """Be gone, at once."""
        self.writer.transport.abort()


class House:
    """The gateway, its server, its pods, and clients of it."""

    def __init__(self, gateway: Gateway, server: Server, port: int, pods: dict[str, TextPod]) -> None:
        self.gateway = gateway
        self.server = server
        self.port = port
        self.pods = pods
        self.clients: list[Client] = []

    async def client(self) -> Client:
        """Connect."""
        client = Client(*await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 22))
        self.clients.append(client)
        return client

    async def learned(self, *lines: str, **how: Any) -> Client:
        """A client whose head the lane knows."""
        client = await self.client()
        before = {name: pod.behaviour for name, pod in self.pods.items()}
        for pod in self.pods.values():
            pod.behaviour = "correct"
        for _ in range(2):
            answer = await client.ask("Learn this.", *lines, **how)
            assert answer.status == 200, answer.body
        for name, pod in self.pods.items():
            pod.behaviour = before[name]
            pod.tasks.clear()
        return client

    def behave(self, behaviour: str) -> None:
        """Have all pods do this."""
        for pod in self.pods.values():
            pod.behaviour = behaviour

    def held(self) -> list[Held]:
        """Calls that wait, and where."""
        return [(pod, call, task) for pod in self.pods.values() for call, task in pod.held]

    async def holding(self, number: int = 1) -> list[Held]:
        """Wait for so many."""
        await eventually(lambda: len(self.held()) >= number)
        return self.held()

    def release(self, held: Held | None = None) -> None:
        """Answer one that waits, or all."""
        for pod, call, task in self.held() if held is None else [held]:
            pod.held.remove((call, task))
            if not call.cancelled:
                pod.finish(call, repeated(task))

    @property
    def underway(self) -> int:
        """How many the lane has."""
        return 0 if self.gateway.lane is None else self.gateway.lane.underway

    def endings(self) -> dict[str, int]:
        """What the lane has carried, by how it ended."""
        found = re.findall(r'lane_requests_total\{ending="(\w+)"\} (\d+)', self.gateway.render_metrics())
        return {name: int(count) for name, count in found}

    def metric(self, name: str) -> float:
        """One sample; 0 if there is none."""
        for line in self.gateway.render_metrics().splitlines():
            if line.rpartition(" ")[0] == "copydesk_gateway_" + name:
                return float(line.rpartition(" ")[2])
        return 0.0

    def requests(self, code: int, path: str = PATH) -> int:
        """How many were answered so."""
        return int(self.metric(f'requests_total{{route="{path}",code="{code}"}}'))

    def busy(self) -> dict[str, int]:
        """All that counts what is underway and is not 0."""
        gateway = self.gateway
        pods = gateway.fleet.pods.values()
        counts = {
            "ledgers": sum(pod.ledger.in_flight for pod in pods),
            "awaited": sum(pod.ledger._awaited for pod in pods),
            "attempts": sum(len(pod.underway) for pod in pods),
            "gate": gateway.dispatcher.gate.underway,
            "queue": len(gateway.dispatcher.gate.queue),
            "waiting": gateway.dispatcher.gate.places.waiting,
            "inside": sum(cell.value for cell in gateway.gatekeeper._inside._by_client.values()),
            "lane": self.underway,
            "requests": int(self.metric("requests_in_flight")),
            "channels": sum(pod.channel.in_flight for pod in pods if pod.channel is not None),
        }
        return {name: count for name, count in counts.items() if count}

    async def idle(self) -> None:
        """Wait until nothing is underway anywhere."""
        try:
            await eventually(lambda: not self.busy())
        except TimeoutError:
            raise AssertionError(f"still underway: {self.busy()}") from None


@asynccontextmanager
async def house(
    native: ModuleType | None, *names: str, keys: KeyRing | None = None, **settings: object
) -> AsyncIterator[House]:
    """A house with pods of these names; at its end nothing must be underway."""
    defaults: dict[str, object] = {"endpoint_wait_ms": 200, "keepalive_ms": 50}
    async with AsyncExitStack() as stack:
        pods = {name: TextPod(name) for name in names or ("a",)}
        for pod in pods.values():
            await pod.start()
            stack.push_async_callback(pod.stop)
        gateway = Gateway(GatewaySettings(**defaults | settings), native)  # type: ignore[arg-type]
        stack.push_async_callback(gateway.close)
        server = Server(build_app(gateway, keys), build_hot_path(gateway, keys), grace=0, timeout=1)
        await know(gateway, *pods.values())
        listener = listen("127.0.0.1", 0)
        serving = asyncio.create_task(server.serve([listener]))
        await eventually(lambda: server.started)
        found = House(gateway, server, listener.getsockname()[1], pods)
        try:
            yield found
            await found.idle()
        finally:
            for client in found.clients:
                client.leave()
            server.stop()
            await serving


async def know(gateway: Gateway, *pods: FakePod) -> None:
    """Have a gateway know these pods and no others, and be connected to them."""
    gateway.fleet.apply(snapshot(*(pod.endpoint() for pod in pods)))
    wanted = {pod.name for pod in pods}
    await eventually(lambda: {pod.id for pod in gateway.fleet.eligible} == wanted)
