"""One inference pod: its place in the membership, the connection to it, and the account of its work."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from copydesk.common.backoff import backoff_seconds
from copydesk.common.messages import Endpoint, EndpointProtocol, EndpointState
from copydesk.common.rpc import Channel, Load, RpcConnectError, RpcHandshakeError, RpcPingError, TcpAddress
from copydesk.common.telemetry import get_logger
from copydesk.common.tls import ClientTls
from copydesk.gateway.http_pod.channel import HttpChannel
from copydesk.gateway.lane.seams import Port
from copydesk.gateway.link import Link
from copydesk.routing import Conduct, LedgerRules, warmth

FIRST_RETRY_SECONDS = 0.05
LONGEST_RETRY_SECONDS = 2.0
STABLE_SECONDS = 5.0
"""A connection that held this long resets the back-off."""

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Dialling:
    """How to reach pods. Times in seconds; `random` gives floats in [0, 1). With `tls` no pod is without."""

    name: str
    model: str
    token: str
    random: Callable[[], float]
    connect_timeout: float = 2.0
    keepalive: float = 1.0
    keepalive_timeout: float = 5.0
    tls: ClientTls | None = None


class Underway(Protocol):
    """A request that a pod has and has not answered yet."""

    @property
    def started_at(self) -> float:
        """When it was sent, in the event loop's time."""

    def on_silence(self) -> None:
        """The pod is taken for hung: look for another one."""


class Pod:
    """A pod of the membership, which is kept connected once it is engaged.

    It is eligible for new work while discovery says it is ready, the connection stands, and the pod itself has
    neither announced that it drains nor said that it is not ready. `on_change` is called whenever that may have
    changed. `underway` are its requests of ours, the oldest first, but for those that an express lane has sent
    through `port`, which `open_port` makes of a new connection where there is such a lane; `born_at` is when it
    first was eligible, in the event loop's time (None until then; minus infinity: before this gateway's time).
    """

    def __init__(
        self,
        endpoint: Endpoint,
        dialling: Dialling,
        on_change: Callable[[Pod], None],
        *,
        ledger: LedgerRules,
        born_at: float | None = None,
        open_port: Callable[[Pod, Link], Port | None] | None = None,
    ) -> None:
        self.id = endpoint.id
        self.endpoint = endpoint
        self.ledger = ledger
        self.standing = self.ledger.standing
        self.channel: Link | None = None
        self.port: Port | None = None
        self.reported = EndpointState.WARMING
        self.retired = False
        self.born_at = born_at
        self.underway: dict[Underway, None] = {}
        self._dialling = dialling
        self._on_change = on_change
        self._open_port = open_port
        self._loop = asyncio.get_running_loop()
        self._nudged = asyncio.Event()
        self._idle = asyncio.Event()
        self._answers = 0
        self._keeper: asyncio.Task[None] | None = None

    @property
    def engaged(self) -> bool:
        """Whether the pod is kept connected."""
        return self._keeper is not None

    @property
    def connected(self) -> bool:
        """Whether the connection stands."""
        return self.channel is not None and not self.channel.closed

    @property
    def digest(self) -> str:
        """The weights that it runs, as far as it has told."""
        return "" if self.channel is None else self.channel.peer.digest

    @property
    def eligible(self) -> bool:
        """Whether new work may go to this pod."""
        channel = self.channel
        return (
            channel is not None
            and not channel.closed
            and not channel.draining
            and not self.retired
            and self.endpoint.state is EndpointState.READY
            and self.reported is EndpointState.READY
        )

    def engage(self) -> None:
        """Connect, and stay connected."""
        if self._keeper is None:
            self._keeper = self._loop.create_task(self._keep_connected(), name=f"pod {self.id}")

    def conduct(self, now: float, withheld: str = "") -> Conduct:
        """The evidence on which the pod is judged; one of the weights that are `withheld` is another version."""
        ledger = self.ledger
        return Conduct(
            self.id,
            ledger.failures,
            ledger.mean_ms,
            ledger.samples,
            ledger.silent(now),
            ledger.answered_at,
            withheld if withheld and withheld == self.digest else "",
        )

    def warm_up(self, now: float, seconds: float) -> None:
        """Have the pod count as much as its age is worth; it takes `seconds` to count in full."""
        if self.born_at is None and self.eligible:
            self.born_at = now
        self.ledger.weight = warmth(now - (now if self.born_at is None else self.born_at), seconds)

    def update(self, endpoint: Endpoint) -> None:
        """Take over what discovery says now; the address must be the same."""
        changed = endpoint.state is not self.endpoint.state
        if 0.0 < self.endpoint.started_at != endpoint.started_at:
            self.born_at = None  # another run of the pod, cold again
        self.endpoint = endpoint
        if changed:
            self._nudged.set()
            self._on_change(self)

    def hear(self, load: Load, now: float) -> None:
        """Take in the load that came with an answer."""
        self._answers += 1
        self.ledger.hear(load.running, load.queued, load.capacity, now)

    def doubt(self) -> None:
        """The pod itself says it cannot work: leave it alone until a ping says otherwise."""
        self.reported = EndpointState.WARMING
        self._on_change(self)

    def request_ended(self) -> None:
        """Tell a retired pod that it may be one request closer to its end."""
        if self.retired and not self.underway:
            self._idle.set()

    def recall(self) -> None:
        """Have all of its requests in `underway`, those that an express lane has sent as well."""
        if self.port is not None:
            self.port.recall()

    async def retire(self, timeout: float) -> None:
        """Wait up to `timeout` seconds for what is in flight, then disconnect; set `retired` before."""
        self.recall()
        if self.underway:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await self._idle.wait()
        if self._keeper is not None:
            self._keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeper
        if self.channel is not None:
            await self.channel.close()

    async def _keep_connected(self) -> None:
        attempt = 0
        while True:
            channel = await self._open(attempt)
            attempt += 1
            if channel is not None:
                since = self._loop.time()
                await self._watch(channel)
                attempt = 0 if self._loop.time() - since >= STABLE_SECONDS else attempt
            share = self._dialling.random()
            await self._pause(
                backoff_seconds(attempt, first=FIRST_RETRY_SECONDS, cap=LONGEST_RETRY_SECONDS, share=share)
            )

    async def _open(self, attempt: int) -> Link | None:
        dialling = self._dialling
        try:
            channel = await self._dial()
        except (RpcConnectError, RpcHandshakeError) as error:
            log = _log.warning if attempt == 0 else _log.debug
            log("pod_unreachable", pod=self.id, error=str(error), attempt=attempt)
            return None
        if channel.peer.model and channel.peer.model != dialling.model:
            _log.error("pod_serves_another_model", pod=self.id, model=channel.peer.model, wanted=dialling.model)
            await channel.close()
            return None
        self._adopt(channel)
        return channel

    async def _dial(self) -> Link:
        endpoint, dialling = self.endpoint, self._dialling
        address = TcpAddress(endpoint.host, endpoint.port)
        tls = dialling.tls
        if endpoint.protocol is EndpointProtocol.OPENAI:
            return await HttpChannel.open(
                address,
                model=dialling.model,
                token=dialling.token,
                timeout=dialling.connect_timeout,
                capacity=endpoint.capacity,
                on_close=self._on_close,
                tls=tls,
            )
        return await Channel.open(
            address,
            name=dialling.name,
            token=dialling.token,
            tls=tls.context() if tls else None,
            tls_name=tls.name if tls else "",
            timeout=dialling.connect_timeout,
            on_drain=self._on_drain,
            on_close=self._on_close,
        )

    def _adopt(self, channel: Link) -> None:
        self.channel = channel
        self.reported = channel.peer.state
        self.ledger.restart(channel.peer.capacity)
        self.port = None if self._open_port is None else self._open_port(self, channel)
        _log.info("pod_connected", pod=self.id, address=str(channel.address), state=self.reported.value)
        self._on_change(self)

    async def _watch(self, channel: Link) -> None:
        """Ping the pod while nothing is heard from it; return once the connection is gone."""
        while not channel.closed:
            answers = self._answers
            # One that is not ready is asked more often: clients may be waiting for it.
            ready = self.reported is EndpointState.READY
            await self._pause(self._dialling.keepalive * (1.0 if ready else 0.25))
            if self._answers != answers and self.reported is EndpointState.READY:
                continue
            try:
                pong = await channel.ping(self._dialling.keepalive_timeout)
            except RpcPingError as error:
                if not channel.closed:
                    _log.warning("pod_silent", pod=self.id, error=str(error))
                    await channel.close()
                return
            self.hear(pong.load, self._loop.time())
            self._report(pong.state)

    async def _pause(self, seconds: float) -> None:
        """Wait; less if the connection closes meanwhile, or if discovery changes its mind."""
        self._nudged.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._nudged.wait()

    def _report(self, state: EndpointState) -> None:
        if state is not self.reported:
            self.reported = state
            self._on_change(self)

    def _on_drain(self, _channel: Link) -> None:
        _log.info("pod_draining", pod=self.id)
        self._on_change(self)

    def _on_close(self, channel: Link) -> None:
        if self.port is not None:
            self.port.close()
            self.port = None
        _log.info("pod_disconnected", pod=self.id, in_flight=channel.in_flight)
        self._nudged.set()
        self._on_change(self)
