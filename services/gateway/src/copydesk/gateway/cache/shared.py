"""Answers kept in Redis, for all gateways."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from copydesk.gateway.redis_link import RedisLink, Reply

KEY_PREFIX = "copydesk:correction:"

MAX_KEYS = 500
"""Keys in one MGET, so that no reply is large."""

MAX_BACKLOG = 10_000
"""Commands that wait for Redis before answers are no longer written: whoever waits for a decision goes first."""

OnValue = Callable[[bytes | None], None]


class RedisCache:
    """Reads and writes answers; `ttl` is how long they are kept, in seconds.

    What is read in one turn of the event loop goes out as one MGET, what is written as SETs in one batch. Where
    Redis is lost or refuses, nothing is found and nothing is kept, and `errors` counts it.
    """

    def __init__(self, link: RedisLink, *, ttl: float) -> None:
        self.errors = {"read": 0, "write": 0}
        self._link = link
        self._ttl_ms = max(1, round(ttl * 1000))
        self._loop = asyncio.get_running_loop()
        self._reads: list[tuple[str, OnValue]] = []

    @property
    def up(self) -> bool:
        """Whether it is worth asking."""
        return self._link.up

    def read(self, key: str, on_value: OnValue) -> None:
        """Look `key` up; `on_value` is called exactly once, and never from within this call."""
        if not self._reads:
            self._loop.call_soon(self._send_reads)
        self._reads.append((key, on_value))

    def write(self, key: str, value: bytes) -> None:
        """Keep `value`, if that can be."""
        if not self._link.up:
            return
        if self._link.backlog > MAX_BACKLOG:
            self.errors["write"] += 1
            return
        self._link.submit(("SET", KEY_PREFIX + key, value, "PX", self._ttl_ms), self._on_written)

    def _send_reads(self) -> None:
        reads, self._reads = self._reads, []
        for start in range(0, len(reads), MAX_KEYS):
            some = reads[start : start + MAX_KEYS]
            command = ("MGET", *(KEY_PREFIX + key for key, _ in some))
            self._link.submit(command, partial(self._on_values, [on_value for _, on_value in some]))

    def _on_values(self, waiting: list[OnValue], reply: Reply) -> None:
        if isinstance(reply, Exception):
            self.errors["read"] += len(waiting)
            reply = [None] * len(waiting)
        for on_value, value in zip(waiting, reply, strict=True):
            on_value(value)

    def _on_written(self, reply: Reply) -> None:
        if isinstance(reply, Exception):
            self.errors["write"] += 1
