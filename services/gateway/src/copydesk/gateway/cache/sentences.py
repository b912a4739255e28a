"""Between those who correct texts and the dispatcher: sentences that need no pod, or no pod of their own.

It is asked as the dispatcher is, and keeps the dispatcher's promises.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from functools import partial

import msgspec

from copydesk.common.rpc import Priority
from copydesk.common.tasks import CorrectedSentence
from copydesk.gateway.cache.flight import Flight, Waiter
from copydesk.gateway.cache.key import cache_key
from copydesk.gateway.cache.memory import MemoryCache
from copydesk.gateway.cache.shared import RedisCache
from copydesk.gateway.demand import Demand
from copydesk.gateway.dispatch import Delivery, OnChunk, OnDone
from copydesk.gateway.metrics import Family
from copydesk.gateway.submits import Handle, Submits

_decode = msgspec.msgpack.Decoder(CorrectedSentence).decode


class Remembered:
    """A sentence whose answer was there; it is told in the next turn of the event loop, unless cancelled."""

    __slots__ = ("_handle",)

    def __init__(self, handle: asyncio.Handle) -> None:
        self._handle = handle

    def cancel(self) -> None:
        """Do not tell."""
        self._handle.cancel()


class SharedSentences:
    """Has identical sentences corrected once.

    With `share`, a sentence that is underway already is waited for rather than sent again: as long as one waits
    for it, it goes on, and each keeps a deadline of its own. Interactive work never waits for a sentence that
    travels as batch work. With `memory` or `redis`, answers are remembered for the weights that gave them.
    """

    def __init__(
        self,
        dispatcher: Submits,
        *,
        share: bool = True,
        memory: MemoryCache | None = None,
        redis: RedisCache | None = None,
    ) -> None:
        self.dispatcher = dispatcher
        self.fleet = dispatcher.fleet
        self.loop = dispatcher.loop
        self._share = share
        self._memory = memory
        self._redis = redis
        self._remembers = memory is not None or redis is not None
        self._idle = not (share or self._remembers)
        self._flights: dict[bytes, Flight] = {}
        self._shared = 0
        self._unusable = 0
        self._found: dict[str, int] = defaultdict(int)

    def beside(self, dispatcher: Submits) -> SharedSentences:
        """Return the same for another dispatcher: what is underway is its own, what is remembered is for both."""
        return SharedSentences(dispatcher, share=self._share, memory=self._memory, redis=self._redis)

    @property
    def demand(self) -> Demand:
        """Where the dispatcher counts."""
        return self.dispatcher.demand

    @property
    def underway(self) -> dict[bytes, Flight] | None:
        """The sentences that others may wait for, by their payloads; None where none are shared."""
        return self._flights if self._share else None

    def submit(
        self,
        payload: bytes,
        deadline: float,
        on_done: OnDone,
        *,
        priority: Priority = Priority.INTERACTIVE,
        on_chunk: OnChunk | None = None,
    ) -> Handle:
        """Have one sentence corrected, as `Dispatcher.submit` would.

        `payload` is an encoded `CorrectSentence`. What comes in parts (`on_chunk`) is neither shared nor
        remembered.
        """
        if self._idle or on_chunk is not None or deadline <= self.loop.time():
            return self.dispatcher.submit(payload, deadline, on_done, priority=priority, on_chunk=on_chunk)
        digest = self.fleet.digest
        key = cache_key(digest, payload) if self._remembers else ""
        value = None if self._memory is None else self._memory.get(key)
        if value is not None:
            self._found["memory"] += 1
            return Remembered(self.loop.call_soon(on_done, Delivery(msgspec.Raw(value), digest)))
        underway = self._flights.get(payload)
        if underway is not None and underway.priority <= priority and underway.digest == digest:
            self._shared += 1
            return underway.join(deadline, on_done)
        return self._start(Flight(self, digest, payload, priority, key), deadline, on_done)

    def forget(self, flight: Flight) -> None:
        """A flight has ended; nobody may join it any more."""
        if self._flights.get(flight.payload) is flight:
            del self._flights[flight.payload]

    def keep(self, flight: Flight, answer: Delivery) -> None:
        """Remember an answer, if it is one."""
        if not self._remembers:
            return
        value = bytes(answer.payload)
        if not _sound(value):
            return
        key = flight.key if answer.digest == flight.digest else cache_key(answer.digest, flight.payload)
        if self._memory is not None:
            self._memory.put(key, value)
        if self._redis is not None:
            self._redis.write(key, value)

    def families(self) -> Iterator[Family]:
        """What there is to count, for the metrics."""
        yield "shared_sentences_total", "counter", "Sentences that waited for one underway.", [((), self._shared)]
        if not self._remembers:
            return
        found = [((("result", result),), count) for result, count in self._found.items()]
        yield "cache_lookups_total", "counter", "Sentences looked up, by where they were found.", found
        errors = {} if self._redis is None else self._redis.errors | {"value": self._unusable}
        failed = [((("operation", operation),), count) for operation, count in errors.items()]
        yield "cache_errors_total", "counter", "Answers that could not be read, written or used.", failed
        if self._memory is not None:
            yield "cache_bytes", "gauge", "Memory that remembered answers take.", [((), self._memory.size)]
            yield "cache_entries", "gauge", "Answers remembered in memory.", [((), len(self._memory))]

    def _start(self, flight: Flight, deadline: float, on_done: OnDone) -> Waiter:
        if self._share:
            self._flights[flight.payload] = flight
        waiter = flight.join(deadline, on_done)
        if not self._remembers:
            flight.depart()
        elif self._redis is not None and self._redis.up and flight.digest:
            self._redis.read(flight.key, partial(self._on_value, flight))
        else:
            self._miss(flight)
        return waiter

    def _on_value(self, flight: Flight, value: bytes | None) -> None:
        if not flight.wanted:
            return
        if value is None:
            self._miss(flight)
        elif not _sound(value):
            self._unusable += 1
            self._miss(flight)
        else:
            self._found["redis"] += 1
            if self._memory is not None:
                self._memory.put(flight.key, value)
            flight.land(Delivery(msgspec.Raw(value), flight.digest))

    def _miss(self, flight: Flight) -> None:
        self._found["miss"] += 1
        flight.depart()


def _sound(value: bytes) -> bool:
    """Say whether these bytes are an answer; what is not must not come back for as long as it is remembered."""
    try:
        _decode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False
    return True
