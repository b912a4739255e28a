"""A worker's connection to an engine: remade for as long as the worker lives."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
import time
from collections.abc import Callable

import msgspec

from copydesk.common.rpc import Channel, Fault, Load, Priority, Response, RpcError, Status, UnixAddress
from copydesk.common.telemetry import get_logger
from copydesk.inference.pod.lifecycle import Backoff, plan_restart
from copydesk.inference.pod.vigil import UNTIMED, SilentError, Vigil

_log = get_logger(__name__)
_RECONNECT = Backoff(first=0.02, cap=0.5, healthy_after=1.0)
_SMOOTHING = 0.1

ENGINE_UNAVAILABLE = Fault("engine_unavailable", "the engine of this pod is starting or was lost")


class EngineLink:
    """Requests to the engine, and what is known of it.

    The load is what the engine last said, on an answer or a ping, plus what this worker has sent it since;
    `refresh` is the time between pings in seconds, which tell of what other workers do. An engine that leaves one
    unanswered for `patience` seconds of this worker's own time counts as lost, and so does what it was asked: the
    supervisor would restart it by then, but may be frozen itself, and a deadline is a long time to wait for
    another pod's answer.

    `queue` requests may wait at the engine beside those that run. `request_seconds` is how long answers took of
    late.
    """

    def __init__(
        self,
        path: str,
        *,
        name: str,
        token: str,
        refresh: float,
        queue: int,
        patience: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._address = UnixAddress(path)
        self._name = name
        self._token = token
        self._refresh = refresh
        self._patience = patience
        self._clock = clock
        self._channel: Channel | None = None
        self._sent = 0
        self._accounted = 0
        self._interactive: set[int] = set()
        self.queue = queue
        self.digest = ""
        self.request_seconds = 0.0

    @property
    def available(self) -> bool:
        """Whether the engine is there."""
        return self._open_channel() is not None

    def has_room(self, priority: Priority) -> bool:
        """Whether the engine may take one more: it surely does not while this worker alone keeps it full.

        Batch work that waits there makes room for what is interactive, and so does not count against it.
        """
        channel = self._channel
        if channel is None:
            return False
        mine = channel.in_flight if priority is Priority.BATCH else len(self._interactive)
        return mine < channel.peer.capacity + self.queue

    @property
    def load(self) -> Load:
        """How busy the engine is, as far as this worker knows."""
        channel = self._channel
        if channel is None:
            return Load()
        last = channel.load
        return Load(last.running, last.queued + self._sent - self._accounted, last.capacity, last.step_ms)

    def send(
        self,
        payload: bytes,
        *,
        deadline_ms: int,
        priority: Priority,
        on_reply: Callable[[Response], None],
        on_chunk: Callable[[msgspec.Raw], None] | None = None,
        trace: str = "",
    ) -> Callable[[], None] | None:
        """Send a request; return what cancels it, or None when there is no engine to send it to."""
        channel = self._open_channel()
        if channel is None:
            return None
        self._sent += 1
        request_id = channel.send(
            payload,
            deadline_ms=deadline_ms,
            priority=priority,
            on_reply=functools.partial(self._answered, channel, on_reply, self._clock()),
            on_chunk=on_chunk,
            trace=trace,
        )
        if priority is Priority.INTERACTIVE:
            self._interactive.add(request_id)
        return functools.partial(self._cancel, channel, request_id)

    async def run(self) -> None:
        """Connect, and connect again, until cancelled."""
        failures = 0
        while True:
            lived = await self._live_once()
            failures, delay = _next_try(failures, lived)
            await asyncio.sleep(delay)

    async def _live_once(self) -> float:
        gone = asyncio.Event()
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            channel = await Channel.open(
                self._address, name=self._name, token=self._token, on_close=lambda _: gone.set()
            )
        except RpcError as error:
            _log.debug("engine_not_there", error=str(error))
            return 0.0
        self._channel, self._accounted, self.digest = channel, self._sent, channel.peer.digest
        self._interactive.clear()
        _log.info("engine_connected", digest=self.digest)
        try:
            await self._stay_informed(channel, gone)
        finally:
            self._channel = None
            await channel.close()
        _log.warning("engine_lost")
        return loop.time() - began

    async def _stay_informed(self, channel: Channel, gone: asyncio.Event) -> None:
        vigil = Vigil(self._patience)
        while not gone.is_set():
            sent = self._sent
            try:
                await vigil.attend(channel.ping(UNTIMED), self._patience)
            except (RpcError, SilentError) as error:
                _log.warning("engine_silent", error=str(error))
                return
            self._accounted = max(self._accounted, sent)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._refresh):
                    await gone.wait()

    def _open_channel(self) -> Channel | None:
        channel = self._channel
        return None if channel is None or channel.closed or channel.draining else channel

    def _cancel(self, channel: Channel, request_id: int) -> None:
        channel.cancel(request_id)
        if channel is self._channel:
            self._interactive.discard(request_id)

    def _answered(
        self, channel: Channel, on_reply: Callable[[Response], None], began: float, response: Response
    ) -> None:
        if channel is self._channel:
            self._interactive.discard(response.id)
        if response.status is Status.UNAVAILABLE:
            response = Response(response.id, response.status, response.load, fault=ENGINE_UNAVAILABLE)
        elif channel is self._channel:
            self._accounted = self._sent
        if response.status is Status.OK:
            self.request_seconds += _SMOOTHING * (self._clock() - began - self.request_seconds)
        on_reply(response)


def _next_try(failures: int, lived: float) -> tuple[int, float]:
    restart = plan_restart(_RECONNECT, failures=failures, lived=lived, chance=random.random())
    return restart.failures, restart.delay
