"""Pods without a network, on an event loop whose clock jumps: what takes a minute takes none."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from copydesk.common.messages import Endpoint, EndpointState
from copydesk.common.rpc import (
    PROTOCOL_VERSION,
    Fault,
    Hello,
    Load,
    Pong,
    Priority,
    Response,
    RpcConnectError,
    RpcPingError,
    Status,
    TcpAddress,
)
from copydesk.common.tasks import CorrectedSentence, CorrectSentence, Outcome
from copydesk.gateway.dispatch import Delivery, Dispatch
from copydesk.gateway.faults import ApiError
from copydesk.gateway.service import Gateway
from copydesk.gateway.settings import GatewaySettings
from tests.fixtures.fake_pod import MODEL
from tests.unit.gateway.conftest import snapshot

PAYLOAD = msgspec.msgpack.encode(CorrectSentence("She go."))
ANSWER = msgspec.Raw(msgspec.msgpack.encode(CorrectedSentence("She goes.", Outcome.CORRECTED, 2, 2)))


@dataclass(eq=False)
class Call:
    """A request that a pod has."""

    channel: VirtualChannel
    id: int
    deadline: float
    on_reply: Callable[[Response], None]
    on_chunk: Callable[[msgspec.Raw], None] | None
    priority: Priority

    @property
    def open(self) -> bool:
        return self.id in self.channel.calls

    def end(self, status: Status = Status.OK, code: str = "some_fault") -> None:
        """Answer, or fail."""
        if self.channel.calls.pop(self.id, None) is None:
            return
        load = self.channel.pod.load()
        fault = None if status is Status.OK else Fault(code, "as the test wants it", retry_after_ms=1000)
        self.on_reply(Response(self.id, status, load, ANSWER, fault))

    def chunk(self) -> None:
        """Send a part of an answer."""
        if self.open and self.on_chunk is not None:
            self.on_chunk(ANSWER)


class VirtualChannel:
    """What the gateway sees of a connection."""

    def __init__(self, pod: VirtualPod, on_drain: Any, on_close: Any) -> None:
        self.pod = pod
        self.peer = Hello(PROTOCOL_VERSION, pod.name, "", MODEL, pod.digest, pod.capacity)
        self.address = TcpAddress("virtual", pod.port)
        self.closed = self.draining = False
        self.calls: dict[int, Call] = {}
        self._on_drain, self._on_close = on_drain, on_close
        self._ids = itertools.count(1)

    @property
    def in_flight(self) -> int:
        return len(self.calls)

    def send(
        self,
        payload: bytes,
        *,
        deadline_ms: int,
        on_reply: Callable[[Response], None],
        on_chunk: Callable[[msgspec.Raw], None] | None = None,
        priority: Priority = Priority.INTERACTIVE,
        trace: str = "",
    ) -> int:
        deadline = asyncio.get_running_loop().time() + deadline_ms / 1000
        call = Call(self, next(self._ids), deadline, on_reply, on_chunk, priority)
        self._expect(call)
        return call.id

    def adopt(
        self,
        request_id: int,
        deadline: float,
        on_reply: Callable[[Response], None],
        on_chunk: Callable[[msgspec.Raw], None] | None = None,
    ) -> None:
        self._expect(Call(self, request_id, deadline, on_reply, on_chunk, Priority.INTERACTIVE))

    def _expect(self, call: Call) -> None:
        loop = asyncio.get_running_loop()
        self.calls[call.id] = call
        if self.closed:
            loop.call_soon(call.end, Status.UNAVAILABLE, "connection_lost")
            return
        loop.call_at(call.deadline, call.end, Status.DEADLINE_EXCEEDED, "deadline_exceeded")
        self.pod.take(call)

    def cancel(self, request_id: int) -> None:
        self.calls.pop(request_id, None)

    async def ping(self, timeout: float = 2.0) -> Pong:
        if self.pod.frozen:
            await asyncio.sleep(timeout)
            raise RpcPingError(self.address, "frozen")
        return Pong(1, self.pod.load(), EndpointState.READY)

    async def close(self) -> None:
        self.lose()

    def lose(self) -> None:
        """The connection breaks."""
        if self.closed:
            return
        self.closed = True
        self._on_close(self)
        for call in tuple(self.calls.values()):
            call.end(Status.UNAVAILABLE, "connection_lost")

    def drain(self) -> None:
        """The pod announces its end."""
        self.draining = True
        self._on_drain(self)


@dataclass(eq=False)
class VirtualPod:
    """A pod that runs `capacity` requests at once, each for `seconds`, the others in turn.

    It answers nothing by itself if `seconds` is None, and nothing at all while it is `frozen`; `fails` makes it
    end everything with that status at once.
    """

    name: str
    port: int
    capacity: int = 8
    seconds: float | None = None
    zone: str = ""
    digest: str = "sha256:virtual"
    fails: Status | None = None
    frozen: bool = False
    served: int = 0
    taken: list[Call] = field(default_factory=list)
    channel: VirtualChannel | None = None
    down: bool = False
    _turns: deque[Call] = field(default_factory=deque)
    _running: int = 0

    def endpoint(self, *, started_at: float = 0.0) -> Endpoint:
        state = EndpointState.READY
        return Endpoint(
            id=self.name, host="virtual", port=self.port, state=state, zone=self.zone, started_at=started_at
        )

    def load(self) -> Load:
        held = self.channel.in_flight if self.channel is not None else 0
        return Load(min(held, self.capacity), max(0, held - self.capacity), self.capacity, 1.0)

    def take(self, call: Call) -> None:
        self.taken.append(call)
        if self.fails is not None:
            asyncio.get_running_loop().call_later(0.001, call.end, self.fails)
        elif self.seconds is not None:
            self._turns.append(call)
            self._next()

    def _next(self) -> None:
        while self._turns and self._running < self.capacity and not self.frozen:
            call = self._turns.popleft()
            if call.open:
                self._running += 1
                asyncio.get_running_loop().call_later(self.seconds or 0.0, self._done, call)

    def _done(self, call: Call) -> None:
        self._running -= 1
        if self.frozen:
            return
        self.served += call.open
        call.end()
        self._next()


class VirtualFleet:
    """A gateway and its pods; make it on the loop that it runs on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pods: dict[int, VirtualPod] = {}
        monkeypatch.setattr("copydesk.gateway.pod.Channel.open", self._open)

    def pod(self, name: str, **how: Any) -> VirtualPod:
        """One more pod."""
        pod = VirtualPod(name, 1000 + len(self.pods), **how)
        self.pods[pod.port] = pod
        return pod

    async def gateway(self, **settings: object) -> Gateway:
        """A gateway that is connected to them."""
        gateway = Gateway(GatewaySettings(**settings))  # type: ignore[arg-type]
        gateway.fleet.apply(snapshot(*(pod.endpoint() for pod in self.pods.values())))
        await asyncio.sleep(0.01)
        return gateway

    async def _open(self, address: TcpAddress, *, on_drain: Any, on_close: Any, **_: Any) -> VirtualChannel:
        pod = self.pods[address.port]
        if pod.down or pod.frozen:
            raise RpcConnectError(address, "down")
        pod.channel = VirtualChannel(pod, on_drain, on_close)
        return pod.channel


class Outcomes:
    """What became of requests."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.answered = 0
        self.errors: list[ApiError] = []
        self.waits: list[float] = []
        self.chunks = 0

    def submit(
        self,
        seconds: float = 5.0,
        *,
        priority: Priority = Priority.INTERACTIVE,
        stream: bool = False,
        payload: bytes = PAYLOAD,
    ) -> Dispatch:
        """Send one."""
        began = asyncio.get_running_loop().time()

        def on_done(outcome: Delivery | ApiError) -> None:
            if isinstance(outcome, ApiError):
                self.errors.append(outcome)
                self.waits.append(asyncio.get_running_loop().time() - began)
            else:
                self.answered += 1

        def on_chunk(_part: msgspec.Raw) -> None:
            self.chunks += 1

        return self.gateway.dispatcher.submit(
            payload, began + seconds, on_done, priority=priority, on_chunk=on_chunk if stream else None
        )

    @property
    def codes(self) -> set[str]:
        return {error.code for error in self.errors}
