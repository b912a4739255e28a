"""Publish and subscribe over NATS, for what may be lost and rebuilt.

A bus is never in anybody's way: connecting happens in the background, for ever; publishing neither blocks nor
raises, and drops while there is no connection. The age of a message is the receiver's to judge.

Each connection is a new nats-py client that may not reconnect by itself. Its own reconnecting would replay what
was queued when the connection broke (stale load reports), wait without jitter, end for good on an authorization
error, and hang on the buffers of a server that has frozen. So the first connection and every later one go the same
way: connect, subscribe, serve until lost, wait with jitter, for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as NatsSubscription
from nats.errors import Error as NatsError

from copydesk.common.backoff import backoff_seconds
from copydesk.common.errors import CopydeskError
from copydesk.common.telemetry import get_logger
from copydesk.common.tls import ClientTls

PING_SECONDS = 5
MAX_OUTSTANDING_PINGS = 1
"""A server that has frozen is noticed within three ping intervals, where nats-py would take minutes."""

CONNECT_SECONDS = 2
CLOSE_SECONDS = 1.0
CANCEL_SECONDS = 0.1
CHECK_SECONDS = 0.5

FIRST_DELAY_SECONDS = 0.25
LONGEST_DELAY_SECONDS = 2.0

COMPLAINT_SECONDS = 10.0
COMPLAINTS = 10
"""So many bodies that do not decode are logged in that time, the others counted: whoever floods a subject must not
flood the log too."""

MAX_QUEUED_MESSAGES = 1024
MAX_PENDING_BYTES = 1 << 20
"""What may wait for a connected server that reads slowly, before more is dropped."""

SCHEMES = ("nats", "tls", "ws", "wss")
TLS_SCHEMES = ("nats", "tls")
"""nats-py would not check the name that we want over WebSocket."""

_log = get_logger(__name__)
_encode = msgspec.json.Encoder().encode

T = TypeVar("T", bound=msgspec.Struct)


class BusUrlError(CopydeskError):
    """A NATS address that cannot be one; it carries the url."""

    def __init__(self, url: str) -> None:
        self.url = url
        super().__init__(
            f"{_without_password(url)!r} is no NATS url: expected nats://host:port, or several with commas"
        )


class BusNotSecureError(NatsError):
    """The server offers no TLS where it is wanted. Raised before the token is sent."""

    def __init__(self) -> None:
        super().__init__("the server speaks without TLS, and TLS is wanted")


def reconnect_delay(attempt: int, chance: float) -> float:
    """Return how many seconds to wait before attempt number `attempt` (from 0); `chance` is uniform in [0, 1).

    Doubles up to a limit, and half of it is jitter, so that a fleet that lost its server does not return as one.
    """
    return backoff_seconds(attempt, first=FIRST_DELAY_SECONDS, cap=LONGEST_DELAY_SECONDS, share=chance)


class Subscription(Generic[T]):
    """Interest in a subject, renewed with every connection."""

    def __init__(self, bus: Bus, subject: str, type_: type[T], callback: Callable[[T], None]) -> None:
        self._bus = bus
        self._decode = msgspec.json.Decoder(type_).decode
        self._callback = callback
        self._complaints = 0
        self._complained_since = -COMPLAINT_SECONDS
        self.subject = subject

    async def on_message(self, message: Msg) -> None:
        """Decode and hand on one message; nothing it contains, and no failure of the callback, gets further."""
        try:
            body = self._decode(message.data)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            self._complain(message.subject, str(error))
            return
        try:
            self._callback(body)
        except Exception:
            _log.exception("bus_callback_failed", subject=message.subject)

    def _complain(self, subject: str, error: str) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._complained_since >= COMPLAINT_SECONDS:
            if self._complaints > COMPLAINTS:
                _log.warning(
                    "bus_messages_undecodable", subject=self.subject, unlogged=self._complaints - COMPLAINTS
                )
            self._complaints, self._complained_since = 0, now
        self._complaints += 1
        if self._complaints <= COMPLAINTS:
            _log.warning("bus_message_undecodable", subject=subject, error=error)

    async def unsubscribe(self) -> None:
        """Receive nothing more."""
        await self._bus.unsubscribe(self)


class Bus:
    """A connection to NATS that is kept up; make it with `connect`.

    `dropped` counts what was published and certainly not sent.
    """

    def __init__(self, servers: list[str], name: str, token: str | None, tls: ClientTls | None = None) -> None:
        self._servers = servers
        self._name = name
        self._token = token
        self._tls = tls
        self._client: Client | None = None
        self._outbox: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue(MAX_QUEUED_MESSAGES)
        self._subscriptions: list[Subscription[Any]] = []
        self._attached: dict[Subscription[Any], NatsSubscription | None] = {}
        self._up = asyncio.Event()
        self._last_error: Exception | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._connected_since: float | None = None
        self.dropped = 0

    @classmethod
    async def connect(cls, url: str, *, name: str, token: str | None = None, tls: ClientTls | None = None) -> Bus:
        """Start connecting to `url` and return at once, whether a server is there or not.

        `url` may list several servers with commas. `name` is shown by the server's monitoring. With `tls`, or
        where `url` says `tls://`, a server without TLS is none. Raises `BusUrlError`.
        """
        servers = [part.strip() for part in url.split(",")]
        for server in servers:
            _check_url(server, TLS_SCHEMES if tls else SCHEMES)
        bus = cls(servers, name, token, tls)
        bus._keeper = asyncio.create_task(bus._keep_connected(), name=f"bus {name}")
        return bus

    @property
    def connected(self) -> bool:
        """Whether what is published now goes out."""
        return self._connected_since is not None and self._client is not None and self._client.is_connected

    @property
    def connected_since(self) -> float | None:
        """When the present connection was made, in the event loop's time; None without one."""
        return self._connected_since if self.connected else None

    async def wait_connected(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds for a connection; say whether there is one."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._up.wait()
                while not self.connected:  # a connection just lost, of which the keeper is not yet aware
                    await asyncio.sleep(CHECK_SECONDS / 10)
                    await self._up.wait()
        return self.connected

    def publish(self, subject: str, message: msgspec.Struct) -> None:
        """Send `message` if there is a connection, else drop it."""
        client = self._client
        if client is None or not self.connected or client.pending_data_size > MAX_PENDING_BYTES:
            self.dropped += 1
            return
        try:
            self._outbox.put_nowait((subject, _encode(message)))
        except asyncio.QueueFull:
            self.dropped += 1

    async def subscribe(self, subject: str, type_: type[T], callback: Callable[[T], None]) -> Subscription[T]:
        """Have `callback` called with each message on `subject`, now and after every reconnect.

        The callback must not block. A body that is no `type_` is logged and dropped. With a connection, the
        server knows of the subscription when this returns.
        """
        subscription = Subscription(self, subject, type_, callback)
        self._subscriptions.append(subscription)
        client = self._client
        if client is not None and self.connected:
            with contextlib.suppress(NatsError, OSError, TimeoutError):
                await self._attach(client, subscription)
                await _settle(client)
        return subscription

    async def unsubscribe(self, subscription: Subscription[Any]) -> None:
        """Give up a subscription of this bus."""
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)
        attached = self._attached.pop(subscription, None)
        if attached is not None and self.connected:
            with contextlib.suppress(NatsError, OSError, TimeoutError):
                await attached.unsubscribe()

    async def close(self) -> None:
        """Send what is queued, close the connection, and make no other."""
        if self._keeper is None:
            return
        keeper, self._keeper = self._keeper, None
        client = self._client
        if client is not None and self.connected:
            with contextlib.suppress(TimeoutError, NatsError, OSError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self._outbox.join()
                    await _settle(client)
        while not keeper.done():  # once is not enough: nats-py swallows a cancellation that meets its own closing
            keeper.cancel()
            await asyncio.wait({keeper}, timeout=CANCEL_SECONDS)

    async def _keep_connected(self) -> None:
        attempt = 0
        while True:
            lost = asyncio.Event()
            client = _SecureClient() if self._secure else Client()
            try:
                await self._establish(client, lost)
                attempt = 0
                await self._serve(client, lost)
            except Exception as error:  # whatever a server says or a library does, there is a next attempt
                self._log_failure(self._last_error or error, first=attempt == 0)
            finally:
                self._up.clear()
                self._client, self._connected_since = None, None
                await _close_client(client)
            await asyncio.sleep(reconnect_delay(attempt, random.random()))
            attempt += 1

    @property
    def _secure(self) -> bool:
        return self._tls is not None or any(server.startswith("tls:") for server in self._servers)

    def _log_failure(self, error: Exception, *, first: bool) -> None:
        log = _log.warning if first else _log.debug
        log("bus_unreachable", servers=self._shown, error=str(error), kind=type(error).__name__)

    @property
    def _shown(self) -> str:
        return ",".join(_without_password(server) for server in self._servers)

    async def _establish(self, client: Client, lost: asyncio.Event) -> None:
        async def on_error(error: Exception) -> None:
            self._last_error = error

        async def on_end() -> None:
            lost.set()

        self._last_error = None
        async with asyncio.timeout(2 * CONNECT_SECONDS):
            await client.connect(
                self._servers,
                name=self._name,
                token=self._token,
                allow_reconnect=False,
                max_reconnect_attempts=1,
                reconnect_time_wait=0,
                connect_timeout=CONNECT_SECONDS,
                ping_interval=PING_SECONDS,
                max_outstanding_pings=MAX_OUTSTANDING_PINGS,
                pending_size=-1,
                error_cb=on_error,
                disconnected_cb=on_end,
                closed_cb=on_end,
                tls=self._tls.context() if self._tls else None,
                tls_hostname=(self._tls.name or None) if self._tls else None,
            )
            if self._secure:
                _tell_of_tls(client)
            self._attached.clear()
            while missing := [each for each in self._subscriptions if each not in self._attached]:
                for subscription in missing:
                    await self._attach(client, subscription)
            await _settle(client)

    async def _attach(self, client: Client, subscription: Subscription[Any]) -> None:
        if subscription in self._attached:
            return
        self._attached[subscription] = None
        self._attached[subscription] = await client.subscribe(subscription.subject, cb=subscription.on_message)

    async def _serve(self, client: Client, lost: asyncio.Event) -> None:
        self._outbox = asyncio.Queue(MAX_QUEUED_MESSAGES)
        self._client, self._connected_since = client, asyncio.get_running_loop().time()
        for subscription in tuple(self._subscriptions):  # any made while the last flush was waited for
            await self._attach(client, subscription)
        self._up.set()
        _log.info("bus_connected", servers=self._shown)
        pump = asyncio.create_task(self._pump(client, self._outbox))
        try:
            while client.is_connected and not lost.is_set():  # a frozen server lets nats-py hang before it tells
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(CHECK_SECONDS):
                        await lost.wait()
        finally:
            pump.cancel()
        _log.warning("bus_lost", servers=self._shown, error=str(self._last_error or "closed by the server"))

    async def _pump(self, client: Client, outbox: asyncio.Queue[tuple[str, bytes]]) -> None:
        while True:
            subject, body = await outbox.get()
            try:
                await client.publish(subject, body)
            except (NatsError, OSError) as error:
                self.dropped += 1
                _log.debug("bus_publish_failed", subject=subject, error=str(error), kind=type(error).__name__)
            finally:
                outbox.task_done()


class _SecureClient(Client):
    """nats-py leaves it to the server's greeting, which comes in plain text, whether there is TLS."""

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        if initial_connection and not info.get("tls_required"):
            raise BusNotSecureError
        await super()._process_info(info, initial_connection)


async def _settle(client: Client) -> None:
    """Return once the server has processed all that `client` was told before.

    One flush is not enough: nats-py writes its ping ahead of the commands that still wait for its flusher. The
    pong to the first says that they have been written, the pong to the second that they have been read.
    """
    await client.flush(CONNECT_SECONDS)
    await client.flush(CONNECT_SECONDS)


def _tell_of_tls(client: Client) -> None:
    """Spare the log a warning at the end of each connection: nats-py's protocol does not know what it runs on."""
    writer = getattr(getattr(client, "_transport", None), "_io_writer", None)
    if writer is not None:
        writer.transport.get_protocol()._over_ssl = True


async def _close_client(client: Client) -> None:
    try:
        with contextlib.suppress(Exception):
            async with asyncio.timeout(CLOSE_SECONDS):
                await client.close()
    finally:  # a client that waits for a frozen server to read never gets to closing, nor one that is cancelled
        writer = getattr(getattr(client, "_transport", None), "_io_writer", None)
        if writer is not None:
            writer.transport.abort()


def _check_url(url: str, schemes: Sequence[str]) -> None:
    try:
        parts = urlsplit(url)
        valid = parts.scheme in schemes and bool(parts.hostname) and (parts.port or 0) >= 0
    except ValueError:
        valid = False
    if not valid:
        raise BusUrlError(url)


def _without_password(url: str) -> str:
    return url.rpartition("@")[2] if "@" in url else url
