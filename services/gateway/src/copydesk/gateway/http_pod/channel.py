"""A server that speaks only OpenAI-style HTTP, with the face of an RPC channel."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from copydesk.common.messages import EndpointState
from copydesk.common.rpc import (
    PROTOCOL_VERSION,
    Fault,
    Hello,
    Load,
    Pong,
    Priority,
    Response,
    RpcConnectError,
    RpcHandshakeError,
    RpcPingError,
    Status,
    TcpAddress,
)
from copydesk.common.rpc.frames import Chunk
from copydesk.common.rpc.pending import OnChunk, OnReply, PendingRequests
from copydesk.common.tasks import Task, TextChunk
from copydesk.common.telemetry import get_logger
from copydesk.common.tls import ClientTls
from copydesk.gateway.http_pod.asking import Inquiry, Job
from copydesk.gateway.http_pod.pool import Pool
from copydesk.gateway.http_pod.questions import question

DEFAULT_CAPACITY = 64
"""Requests that a server is taken to run at once, where discovery does not say."""

MODELS = "/v1/models"

_CONNECTION_LOST = Fault("connection_lost", "the connection to the pod was lost")
_DEADLINE_EXCEEDED = Fault("deadline_exceeded", "no answer before the deadline")
_FULL = (429, 503)

_encode = msgspec.msgpack.Encoder().encode
_tasks: msgspec.msgpack.Decoder[Task] = msgspec.msgpack.Decoder(Task)
_log = get_logger(__name__)


class _ModelCard(msgspec.Struct):
    id: str
    digest: str = ""


class _ModelCards(msgspec.Struct):
    data: list[_ModelCard]


class HttpChannel:
    """Sends tasks to one server, each over a connection of its own; make it with `open`.

    A server does not say how busy it is: `load` is what this gateway has sent and not heard of again. Nor does it
    greet: `peer` is made of what `/v1/models` says. And it is not told the priority of a request.
    """

    peer: Hello

    def __init__(
        self,
        address: TcpAddress,
        *,
        token: str,
        timeout: float,
        capacity: int,
        on_close: Callable[[HttpChannel], None] | None,
        tls: ClientTls | None = None,
    ) -> None:
        self.address = address
        self.closed = False
        self.draining = False
        self._loop = asyncio.get_running_loop()
        self._authorization = f"Authorization: Bearer {token}\r\n" if token else ""
        self._capacity = capacity or DEFAULT_CAPACITY
        self._on_close = on_close
        self._model = ""
        self._opened = False
        self._last_id = 0
        self._pool = Pool(address, timeout, tls)
        self._pending = PendingRequests(self._loop, self._on_expired)
        self._jobs: dict[int, Job] = {}

    @classmethod
    async def open(
        cls,
        address: TcpAddress,
        *,
        model: str,
        token: str = "",
        timeout: float = 2.0,
        capacity: int = 0,
        on_close: Callable[[HttpChannel], None] | None = None,
        tls: ClientTls | None = None,
    ) -> HttpChannel:
        """Connect, and ask which models there are, within `timeout` seconds.

        Of several the one that is called `model` is used, else the first. `token` is sent as the API key. With
        `tls` it is HTTPS, and the server must have the name that pods have. Raises `RpcConnectError` and
        `RpcHandshakeError`.
        """
        channel = cls(address, token=token, timeout=timeout, capacity=capacity, on_close=on_close, tls=tls)
        try:
            async with asyncio.timeout(timeout):
                status, body = await channel._get(MODELS)
            channel._greeted(status, body, model)
        except TimeoutError:
            raise RpcConnectError(address, f"no answer within {timeout:g} s") from None
        except OSError as error:
            raise RpcConnectError(address, str(error)) from error
        finally:
            if not channel._opened:
                await channel.close()
        return channel

    @property
    def load(self) -> Load:
        """What this gateway has sent and not heard of again."""
        return Load(len(self._jobs), 0, self._capacity)

    @property
    def in_flight(self) -> int:
        """Requests without an answer."""
        return len(self._pending)

    def send(
        self,
        payload: bytes,
        *,
        deadline_ms: int,
        on_reply: OnReply,
        on_chunk: OnChunk | None = None,
        priority: Priority = Priority.INTERACTIVE,
        trace: str = "",
    ) -> int:
        """Send a task, one msgpack value, and return its id; `on_reply` is called as an RPC channel does."""
        del priority
        self._last_id = request_id = self._last_id + 1
        self._pending.add(request_id, self._loop.time() + deadline_ms / 1000, on_reply, on_chunk)
        if self.closed:
            lost = Response(request_id, Status.UNAVAILABLE, self.load, fault=_CONNECTION_LOST)
            self._loop.call_soon(self._pending.end, lost)
            return request_id
        asked = question(_tasks.decode(payload), self._model)
        job = Job(self._pool, self, request_id, asked, self._request("POST", asked.path, asked.body, trace))
        self._jobs[request_id] = job
        job.send()
        return request_id

    def cancel(self, request_id: int) -> None:
        """Give a request up: the server sees its connection close. An id that is not in flight is ignored."""
        if self._pending.discard(request_id):
            self._stop(request_id)

    async def ping(self, timeout: float = 2.0) -> Pong:
        """Ask for a sign of life; raises `RpcPingError` when none comes within `timeout` seconds."""
        if self.closed:
            raise RpcPingError(self.address, "the channel is closed")
        try:
            async with asyncio.timeout(timeout):
                status, _ = await self._get(MODELS)
        except TimeoutError:
            raise RpcPingError(self.address, f"no answer within {timeout:g} s") from None
        except OSError as error:
            raise RpcPingError(self.address, str(error)) from error
        if status != 200 and status not in _FULL:
            raise RpcPingError(self.address, f"{MODELS} answers with status {status}")
        return Pong(0, self.load, EndpointState.READY if status == 200 else EndpointState.WARMING)

    async def close(self) -> None:
        """End every connection; what is in flight is answered `UNAVAILABLE`."""
        self._finish()
        await self._pool.close()

    def stream(self, request_id: int, text: str) -> None:
        """Hand on a part of an answer."""
        self._pending.stream(Chunk(request_id, msgspec.Raw(_encode(TextChunk(text)))))

    def answer(self, request_id: int, payload: bytes) -> None:
        """Hand on an answer."""
        self._jobs.pop(request_id, None)
        self._pending.end(Response(request_id, Status.OK, self.load, msgspec.Raw(payload)))

    def fail(self, request_id: int, status: Status, fault: Fault) -> None:
        """End a request without an answer."""
        self._jobs.pop(request_id, None)
        self._pending.end(Response(request_id, status, self.load, fault=fault))

    def lost(self, error: OSError) -> None:
        """The server cannot be reached any more."""
        if not self.closed:
            _log.warning("http_pod_lost", address=str(self.address), error=str(error))
            self._finish()

    def _greeted(self, status: int, body: bytes, model: str) -> None:
        if status != 200:
            raise RpcHandshakeError(self.address, f"{MODELS} answers with status {status}")
        try:
            cards = msgspec.json.decode(body, type=_ModelCards).data
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise RpcHandshakeError(self.address, f"{MODELS} answers with no list of models: {error}") from error
        if not cards:
            raise RpcHandshakeError(self.address, "it serves no model")
        card = next((card for card in cards if card.id == model), cards[0])
        self._model = card.id
        self.peer = Hello(PROTOCOL_VERSION, card.id, digest=card.digest, capacity=self._capacity)
        self._opened = True

    async def _get(self, path: str) -> tuple[int, bytes]:
        """Return status and body. Raises `OSError`."""
        inquiry = Inquiry(self._pool, self._request("GET", path, b""))
        inquiry.send()
        try:
            return await inquiry.answer
        finally:
            inquiry.stop()

    def _request(self, method: str, path: str, body: bytes, trace: str = "") -> bytes:
        about = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n" if body else ""
        about += f"traceparent: {trace}\r\n" if trace else ""
        head = f"{method} {path} HTTP/1.1\r\nHost: {self.address}\r\n{about}{self._authorization}\r\n"
        return head.encode("latin-1") + body

    def _on_expired(self, request_id: int) -> None:
        self._stop(request_id)
        self.fail(request_id, Status.DEADLINE_EXCEEDED, _DEADLINE_EXCEEDED)

    def _stop(self, request_id: int) -> None:
        job = self._jobs.pop(request_id, None)
        if job is not None:
            job.stop()

    def _finish(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._pool.drop()
        self._pending.stop_sweeping()
        if self._on_close is not None and self._opened:
            self._on_close(self)
        for request_id in self._pending.ids():
            self._stop(request_id)
            self.fail(request_id, Status.UNAVAILABLE, _CONNECTION_LOST)
