"""Keeping the gatekeeper's keys up to date while the gateway runs."""

from __future__ import annotations

import asyncio
import contextlib

from redis.exceptions import RedisError

from copydesk.common.telemetry import get_logger
from copydesk.gateway.access.gatekeeper import Gatekeeper
from copydesk.gateway.access.sources import KeyFile, RedisKeys
from copydesk.gateway.keys import KeyRing
from copydesk.gateway.redis_link import RedisLostError

UNREAD_SECONDS = 0.1
"""Time between looks while keys have never been read: clients wait for them."""

_log = get_logger(__name__)


class KeyWatch:
    """Looks at the sources of keys every `interval` seconds; a key in either of them is let in."""

    def __init__(
        self, gatekeeper: Gatekeeper, file: KeyFile | None, redis: RedisKeys | None, *, interval: float
    ) -> None:
        self._gatekeeper = gatekeeper
        self._file = file
        self._redis = redis
        self._interval = interval
        self._used: tuple[KeyRing | None, KeyRing | None] | None = None
        self._hand_on()

    async def run(self) -> None:
        """Look for ever; what goes wrong is logged, and the keys stay as they are."""
        while True:
            try:
                await self.look()
            except Exception:
                _log.exception("keys_not_read")
            await asyncio.sleep(self._interval if self._complete else min(self._interval, UNREAD_SECONDS))

    async def look(self) -> None:
        """Look once, and have the gatekeeper use what has changed."""
        if self._file is not None:
            await self._file.look()
        if self._redis is not None:
            with contextlib.suppress(RedisLostError, RedisError):  # the link logs its own troubles
                await self._redis.look()
        self._hand_on()

    @property
    def _complete(self) -> bool:
        return self._redis is None or self._redis.ring is not None

    def _hand_on(self) -> None:
        of_file = None if self._file is None else self._file.ring
        of_redis = None if self._redis is None else self._redis.ring
        if self._used == (of_file, of_redis):
            return
        self._used = (of_file, of_redis)
        ring = of_file or KeyRing(())
        if of_redis is not None:
            ring = ring.joined(of_redis)
        self._gatekeeper.use(ring)
        self._gatekeeper.complete = self._complete
