"""The connection to Redis, for those who can do without it.

One connection, and one batch on it at a time: what is submitted in one turn of the event loop, or while a batch is
out, goes as the next batch, in one write, and is answered in one read. So the busier the gateway, the larger the
batches, and Redis never sees more than one of them from here. Nothing waits for a Redis that is gone: a batch has
a bounded time; when that is over everything that waits is told so, and what comes later is told at once, while the
link tries to come back.

It is redis-py's own connection without its client and pool, which would cost more than the commands do.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from pydantic import SecretStr
from redis.asyncio.connection import Connection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, ResponseError

from copydesk.common.backoff import backoff_seconds
from copydesk.common.errors import CopydeskError
from copydesk.common.telemetry import get_logger
from copydesk.gateway.metrics import Family

CONNECT_SECONDS = 2.0
"""How long connecting, TLS and authentication included, may take when nobody waits for it."""

CLOSE_SECONDS = 0.2

FIRST_DELAY_SECONDS = 0.05
LONGEST_DELAY_SECONDS = 1.0

COMPLAINT_SECONDS = 60.0

PING_SECONDS = 1.0
"""After so long without a batch Redis is asked whether it is there, so that requests need not find out."""

MAX_BATCH = 1_000
"""Commands in one batch; together they keep Redis busy for some milliseconds."""

Command = tuple[str | bytes | int, ...]
Reply = Any
"""What Redis answered, or the exception that came instead: redis-py's `ResponseError`, or `RedisLostError`."""

OnReply = Callable[[Reply], None]

_log = get_logger(__name__)


class RedisUrlError(CopydeskError, ValueError):
    """An address that cannot be one. It does not show it, since it may hold a password."""

    def __init__(self) -> None:
        super().__init__("not an address such as redis://host:6379/0, rediss://user:password@host or unix:///path")


class RedisLostError(CopydeskError):
    """Redis did not answer in time, or is not connected."""


class RedisLink:
    """Submits commands to the Redis at `url`; make it on the event loop that it runs on.

    `timeout` is how long a batch may take, in seconds; who submits while one is out waits up to twice that.
    `random` gives floats in [0, 1). Raises `RedisUrlError`.
    """

    def __init__(self, url: str, *, timeout: float, random: Callable[[], float]) -> None:
        self.up = False
        self.outages = 0
        self.batches = 0
        self.commands = 0
        self._connection: Any = connection(url)
        self._timeout = timeout
        self._random = random
        self._loop = asyncio.get_running_loop()
        self._waiting: list[tuple[Command, OnReply]] = []
        self._out: list[tuple[Command, OnReply]] = []
        self._wake = asyncio.Event()
        self._lost_at: float | None = None
        self._quiet_until = 0.0
        self._task: asyncio.Task[None] | None = None
        self._pinger: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to connect; until that is done Redis counts as not there."""
        self._task = self._loop.create_task(self._run(), name="redis link")
        self._pinger = self._loop.call_later(PING_SECONDS, self._ping, self.batches)

    async def close(self) -> None:
        """Disconnect; what still waits is told that Redis is lost."""
        if self._pinger is not None:
            self._pinger.cancel()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self._fail("the link was closed")
        with contextlib.suppress(Exception):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._connection.disconnect()

    def submit(self, command: Command, on_reply: OnReply) -> None:
        """Send a command; `on_reply` is called exactly once, and never from within this call."""
        if not self.up:
            self._loop.call_soon(_deliver, on_reply, RedisLostError("there is no Redis now"))
            return
        self._waiting.append((command, on_reply))
        self._wake.set()

    async def call(self, *command: str | bytes | int) -> Reply:
        """Send a command and wait for its reply; raises what came instead of one."""
        answer: asyncio.Future[Reply] = self._loop.create_future()

        def settle(reply: Reply) -> None:
            if not answer.done():
                answer.set_result(reply)

        self.submit(command, settle)
        reply = await answer
        if isinstance(reply, Exception):
            raise reply
        return reply

    @property
    def backlog(self) -> int:
        """Commands that wait to be sent."""
        return len(self._waiting)

    def families(self) -> Iterator[Family]:
        """What there is to count, for the metrics."""
        yield "redis_up", "gauge", "Whether Redis answers.", [((), int(self.up))]
        yield "redis_outages_total", "counter", "Times that Redis was lost.", [((), self.outages)]
        yield "redis_batches_total", "counter", "Round trips to Redis.", [((), self.batches)]
        yield "redis_commands_total", "counter", "Commands sent to Redis.", [((), self.commands)]

    def _ping(self, batches: int) -> None:
        if self.up and self.batches == batches and not self._out:
            self.submit(("PING",), _ignore)
        self._pinger = self._loop.call_later(PING_SECONDS, self._ping, self.batches)

    async def _run(self) -> None:
        while True:
            await self._come_back()
            try:
                await self._serve()
            except Exception as error:
                self._lose(error)

    async def _come_back(self) -> None:
        """Connect, and try again until a ping is answered."""
        attempt = 0
        while not await self._answers():
            share = self._random()
            await asyncio.sleep(
                backoff_seconds(attempt, first=FIRST_DELAY_SECONDS, cap=LONGEST_DELAY_SECONDS, share=share)
            )
            attempt += 1
        self.up = True
        if self._lost_at is not None:
            _log.info("redis_back", seconds=round(self._loop.time() - self._lost_at, 3))
            self._lost_at = None

    async def _answers(self) -> bool:
        await self._disconnect()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await self._connection.connect()
            async with asyncio.timeout(self._timeout):
                (reply,) = await self._exchange([("PING",)])
            if isinstance(reply, Exception):
                raise reply
        except Exception as error:
            self._lose(error)
            return False
        return True

    async def _serve(self) -> None:
        """Pass on what is submitted; returns only by what goes wrong."""
        while True:
            await self._wake.wait()
            self._out, self._waiting = self._waiting[:MAX_BATCH], self._waiting[MAX_BATCH:]
            if not self._waiting:
                self._wake.clear()
            async with asyncio.timeout(self._timeout):
                replies = await self._exchange_again([command for command, _ in self._out])
            answered, self._out = self._out, []
            self.batches += 1
            self.commands += len(answered)
            self._note_refusals(replies)
            for (_, on_reply), reply in zip(answered, replies, strict=True):
                _deliver(on_reply, reply)

    async def _exchange_again(self, commands: list[Command]) -> list[Reply]:
        """Exchange, once more if the connection is closed under it: Redis may have dropped an idle one."""
        try:
            return await self._exchange(commands)
        except RedisConnectionError:
            return await self._exchange(commands)

    async def _exchange(self, commands: list[Command]) -> list[Reply]:
        connected = self._connection
        await connected.send_packed_command(connected.pack_commands(commands), check_health=False)
        return [await self._reply() for _ in commands]

    async def _reply(self) -> Reply:
        try:
            return await self._connection.read_response()
        except ResponseError as error:
            return error

    def _lose(self, error: Exception) -> None:
        """Tell everybody who waits; log it once an outage."""
        self.up = False
        reason = "no answer in time" if isinstance(error, TimeoutError) else str(error)
        if self._lost_at is None:
            self._lost_at = self._loop.time()
            self.outages += 1
            _log.warning("redis_lost", error=reason)
        self._fail(reason)

    def _fail(self, reason: str) -> None:
        self.up = False
        lost, self._out, self._waiting = [*self._out, *self._waiting], [], []
        self._wake.clear()
        for _, on_reply in lost:
            _deliver(on_reply, RedisLostError(reason))

    def _note_refusals(self, replies: list[Reply]) -> None:
        """Log a command that Redis refuses, one a minute: a full or read-only one refuses without end."""
        now = self._loop.time()
        if now < self._quiet_until:
            return
        for reply in replies:
            if isinstance(reply, Exception) and not isinstance(reply, NoScriptError):
                _log.warning("redis_refuses", error=str(reply))
                self._quiet_until = now + COMPLAINT_SECONDS
                return

    async def _disconnect(self) -> None:
        with contextlib.suppress(Exception):
            await self._connection.disconnect(nowait=True)


def connection(url: str) -> Connection:
    """Return redis-py's connection to `url`, not connected yet; raises `RedisUrlError`.

    It speaks RESP2, which every Redis and its successors do, retries nothing by itself, and sets no time-outs but
    for connecting: the link watches the clock for whole batches.
    """
    try:
        arguments: dict[str, Any] = dict(parse_url(url))
        kind = arguments.pop("connection_class", Connection)
        arguments |= {"protocol": 2, "socket_timeout": None, "socket_connect_timeout": CONNECT_SECONDS}
        arguments |= {"retry": Retry(NoBackoff(), 0), "driver_info": None}
        made: Connection = kind(**arguments)
    except (ValueError, TypeError):
        raise RedisUrlError from None
    return made


def _ignore(reply: Reply) -> None:
    del reply


def _deliver(on_reply: OnReply, reply: Reply) -> None:
    try:
        on_reply(reply)
    except Exception:
        _log.exception("redis_callback_failed")


def redis_url(url: SecretStr) -> SecretStr:
    """Return `url` if it is empty or could be Redis' address; raises `RedisUrlError`."""
    if url.get_secret_value():
        connection(url.get_secret_value())
    return url
