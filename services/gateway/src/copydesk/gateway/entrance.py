"""What stands in front of the fleet: who may come in, and what need not go further."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable

from copydesk.gateway.access import Gatekeeper, KeyFile, KeyWatch, RedisKeys
from copydesk.gateway.cache import MemoryCache, RedisCache, SharedSentences
from copydesk.gateway.cells import Cell, Count
from copydesk.gateway.dispatch import Dispatcher
from copydesk.gateway.metrics import Metrics
from copydesk.gateway.rates import ClosedMeter, LocalMeter, Meter, SharedMeter
from copydesk.gateway.redis_link import RedisLink
from copydesk.gateway.settings import GatewaySettings


class Entrance:
    """Keys, limits, remembered and shared sentences, and the Redis that they share with other gateways, if any."""

    def __init__(
        self,
        settings: GatewaySettings,
        dispatcher: Dispatcher,
        metrics: Metrics,
        *,
        new_cell: Callable[[], Count] = Cell,
    ) -> None:
        self.redis = _redis(settings)
        self.gatekeeper = Gatekeeper(
            _meter(settings, self.redis, new_cell),
            settings.key_limits,
            new_cell=new_cell,
            resuming=dispatcher.resuming,
        )
        self.sentences = _sentences(settings, dispatcher, self.redis)
        self._watch = _watch(settings, self.gatekeeper, self.redis)
        self._watching: asyncio.Task[None] | None = None
        for part in (self.gatekeeper, self.sentences, self.redis):
            if part is not None:
                metrics.include(part.families)

    def start(self) -> None:
        """Begin to connect to Redis, and to look after the keys; returns at once."""
        if self.redis is not None:
            self.redis.start()
        if self._watch is not None:
            self._watching = asyncio.get_running_loop().create_task(self._watch.run(), name="key watch")

    async def close(self) -> None:
        """Disconnect from Redis, and look after nothing any more."""
        if self._watching is not None:
            self._watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watching
        if self.redis is not None:
            await self.redis.close()

    def missing(self) -> str | None:
        """Say what keeps clients from coming in; None when nothing does."""
        return None if self.gatekeeper.complete else "the API keys have not been read yet"


def _redis(settings: GatewaySettings) -> RedisLink | None:
    url = settings.redis_url.get_secret_value()
    if not url:
        return None
    return RedisLink(url, timeout=settings.redis_timeout_ms / 1000, random=random.random)


def _meter(settings: GatewaySettings, redis: RedisLink | None, new_cell: Callable[[], Count]) -> Meter:
    # Not the event loop's time, which may stand still for a turn: a lane that shares the cells reads the clock.
    local = LocalMeter(time.monotonic, new_cell=new_cell)
    if redis is None:
        return local
    return SharedMeter(redis, local if settings.redis_lost == "open" else ClosedMeter())


def _sentences(settings: GatewaySettings, dispatcher: Dispatcher, redis: RedisLink | None) -> SharedSentences:
    memory = shared = None
    if settings.cache != "off" and settings.cache_bytes:
        memory = MemoryCache(settings.cache_bytes)
    if settings.cache == "redis" and redis is not None:
        shared = RedisCache(redis, ttl=settings.cache_ttl_s)
    return SharedSentences(dispatcher, share=settings.share_sentences, memory=memory, redis=shared)


def _watch(settings: GatewaySettings, gatekeeper: Gatekeeper, redis: RedisLink | None) -> KeyWatch | None:
    file = None if settings.api_keys_file is None else KeyFile(settings.api_keys_file)
    stored = RedisKeys(redis) if settings.api_keys_redis and redis is not None else None
    if file is None and stored is None:
        return None
    return KeyWatch(gatekeeper, file, stored, interval=settings.api_keys_refresh_ms / 1000)
