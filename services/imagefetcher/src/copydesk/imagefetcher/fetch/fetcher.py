"""Fetches each sector once, whoever asks for it and how often, and the most urgent ones first."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from copydesk.common.backoff import backoff_seconds
from copydesk.common.telemetry import get_logger
from copydesk.imagefetcher.fetch.agenda import Agenda, Priority
from copydesk.imagefetcher.fetch.errors import Fault, FetchError, SourceError
from copydesk.imagefetcher.fetch.place import Place
from copydesk.imagefetcher.fetch.source import Source, SourceKind
from copydesk.imagefetcher.fetch.standing import Standing, in_order
from copydesk.imagefetcher.metrics import Metrics

FIRST_RETRY_S = 0.1
LONGEST_RETRY_S = 2.0
PEER_PATIENCE_S = 5.0
"""Seconds that a peer may take for a sector: it is asked because it is fast, and others can be asked instead."""

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Terms:
    """How much is fetched at a time, and how long is tried.

    `rounds` is how often all sources are asked for a sector that a reader waits for, `attempt` the seconds that
    one request may take, `deadline` the seconds after which no further round begins. `demand`, `prefetch` and
    `background` are requests at a time, `run` is how many sectors one request of the latter two may bring.
    """

    attempt: float = 20.0
    deadline: float = 60.0
    rounds: int = 4
    demand: int = 16
    prefetch: int = 4
    background: int = 1
    run: int = 4


@dataclass(eq=False, slots=True)
class _Flight:
    """A sector that is wanted, from the first who asks until it is kept."""

    place: Place
    priority: Priority
    result: asyncio.Future[bytes] = field(repr=False)
    ended: asyncio.Event = field(default_factory=asyncio.Event, repr=False)
    others: list[Place] = field(default_factory=list)
    running: bool = False


class Fetcher:
    """Everything is called on one event loop.

    `sources_of` says who may have a sector, `held` returns one that is cached (or None), `keep` caches one: the
    latter two are called in threads.
    """

    def __init__(
        self,
        terms: Terms,
        sources_of: Callable[[Place], Sequence[Source]],
        held: Callable[[Place], bytes | None],
        keep: Callable[[str, bytes], object],
        metrics: Metrics,
    ) -> None:
        self._terms = terms
        self._sources_of = sources_of
        self._held = held
        self._keep = keep
        self._metrics = metrics
        self._agenda = Agenda()
        self._flights: dict[str, _Flight] = {}
        self._standings: dict[str, Standing] = {}
        self._running: Counter[Priority] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def waiting(self) -> int:
        """How many sectors are on the agenda or on their way."""
        return len(self._flights)

    def want(self, place: Place, priority: Priority) -> asyncio.Future[bytes]:
        """Return the future content of a sector, which others may await too; it fails with FetchError."""
        flight = self._flights.get(place.digest)
        if flight is None:
            flight = _Flight(place, priority, asyncio.get_running_loop().create_future())
            flight.result.add_done_callback(_heard)
            self._flights[place.digest] = flight
            self._agenda.add(place, priority)
        else:
            self._join(flight, place, priority)
        if priority is Priority.DEMAND:
            self._dispatch()
        else:  # later, so that all that is wanted now can go together
            asyncio.get_running_loop().call_soon(self._dispatch)
        return flight.result

    def _join(self, flight: _Flight, place: Place, priority: Priority) -> None:
        if place.image != flight.place.image and place not in flight.others:
            flight.others.append(place)  # another image that has the sector, maybe in a better registry
        if priority < flight.priority:
            flight.priority = priority
            if not flight.running:
                self._agenda.add(flight.place, priority)

    async def settled(self, places: Sequence[Place]) -> None:
        """Wait until sectors that were wanted are kept, or are known not to be had."""
        flights = [self._flights.get(place.digest) for place in places]
        for flight in flights:
            if flight is not None:
                await flight.ended.wait()

    def give_up(self, priority: Priority) -> None:
        """Fail everything of `priority` that has not begun."""
        for place in self._agenda.drop(priority):
            self._end(place, FetchError(place.digest, None))

    async def close(self) -> None:
        """Stop fetching; who waits is told so."""
        self._closed = True
        for priority in Priority:
            self.give_up(priority)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _dispatch(self) -> None:
        limits = {
            Priority.DEMAND: self._terms.demand,
            Priority.PREFETCH: self._terms.prefetch,
            Priority.BACKGROUND: self._terms.background,
        }
        while not self._closed:
            free = {priority: limit - self._running[priority] for priority, limit in limits.items()}
            taken = self._agenda.take(free, self._terms.run)
            if taken is None:
                return
            priority, run = taken
            for place in run:
                self._flights[place.digest].running = True
            self._running[priority] += 1
            task = asyncio.create_task(self._work(priority, run))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _work(self, priority: Priority, run: list[Place]) -> None:
        flights = {place.digest: self._flights[place.digest] for place in run}
        try:
            await self._serve(priority, run)
        finally:
            self._running[priority] -= 1
            for place in run:
                # One that was kept may be evicted and wanted again already: that is no longer this task's.
                if self._flights.get(place.digest) is flights[place.digest]:
                    self._end(place, FetchError(place.digest, None))
            self._dispatch()

    async def _serve(self, priority: Priority, run: list[Place]) -> None:
        run = [place for place in run if not await self._serve_held(place)]
        if len(run) > 1:
            # Where one of several is broken, the others are fetched singly.
            with contextlib.suppress(FetchError):
                contents = await self._ask_all(run, priority)
                for place, content in zip(run, contents, strict=True):
                    self._answer(place, content)
                for place, content in zip(run, contents, strict=True):
                    await self._store(place, content)
                return
        for place in run:
            await self._serve_one(place)

    async def _serve_held(self, place: Place) -> bool:
        """Who asked may have looked just before the sector was kept."""
        content = await asyncio.to_thread(self._held, place)
        if content is None:
            return False
        self._answer(place, content)
        self._end(place, None)
        return True

    async def _serve_one(self, place: Place) -> None:
        try:
            content = await self._insist(place)
        except FetchError as error:
            _log.warning("sector_unavailable", image=place.image, number=place.number, error=str(error))
            self._end(place, error)
            return
        self._answer(place, content)
        await self._store(place, content)

    async def _store(self, place: Place, content: bytes) -> None:
        await asyncio.to_thread(self._keep, place.digest, content)
        self._end(place, None)

    def _answer(self, place: Place, content: bytes) -> None:
        result = self._flights[place.digest].result
        if not result.done():
            result.set_result(content)

    def _end(self, place: Place, error: FetchError | None) -> None:
        flight = self._flights.pop(place.digest, None)
        if flight is None:
            return
        flight.ended.set()
        if error is not None and not flight.result.done():
            flight.result.set_exception(error)

    async def _insist(self, place: Place) -> bytes:
        """Ask all sources, and again while a reader waits."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._terms.deadline
        flight = self._flights[place.digest]
        attempt = 0
        while True:
            try:
                return await self._ask_for(flight)
            except FetchError:
                attempt += 1
                pause = backoff_seconds(
                    attempt - 1, first=FIRST_RETRY_S, cap=LONGEST_RETRY_S, share=random.random()
                )
                late = loop.time() + pause > deadline or attempt >= self._terms.rounds
                if late or flight.priority is not Priority.DEMAND:
                    raise
            await asyncio.sleep(pause)

    async def _ask_for(self, flight: _Flight) -> bytes:
        """Ask the sources of each image that has the sector."""
        failure: FetchError | None = None
        for place in (flight.place, *flight.others):
            try:
                return (await self._ask_all([place], flight.priority))[0]
            except FetchError as error:
                failure = error
        assert failure is not None
        raise failure

    async def _ask_all(self, run: list[Place], priority: Priority) -> list[bytes]:
        """Ask each source once, in order, until one has given all of `run`."""
        loop = asyncio.get_running_loop()
        sources = self._sources_of(run[0])
        last: SourceError | None = None
        for source in in_order(sources, self._standings, loop.time(), [random.random() for _ in sources]):
            began = loop.time()
            try:
                contents = await self._ask(source, run)
            except SourceError as error:
                last = error
                self._failed(source, error, loop.time())
                continue
            self._standings.pop(source.name, None)
            self._metrics.fetched(
                source.kind, priority, [len(content) for content in contents], loop.time() - began
            )
            return contents
        raise FetchError(run[0].digest, last)

    async def _ask(self, source: Source, run: list[Place]) -> list[bytes]:
        patience = self._terms.attempt
        if source.kind is SourceKind.PEER:
            patience = min(patience, PEER_PATIENCE_S * len(run))
        try:
            async with asyncio.timeout(patience):
                return await source.fetch(run)
        except TimeoutError as error:
            raise SourceError(source.name, Fault.TIMEOUT, f"nothing within {patience} s") from error
        except SourceError:
            raise
        except Exception as error:  # whatever a source does, the next one is asked
            raise SourceError(source.name, Fault.REFUSED, f"{type(error).__name__}: {error}") from error

    def _failed(self, source: Source, error: SourceError, now: float) -> None:
        self._metrics.source_failed(source.kind, error.fault)
        _log.warning("source_failed", source=source.name, fault=error.fault.value, detail=error.detail)
        if error.fault is not Fault.ABSENT:
            standing = self._standings.get(source.name, Standing())
            self._standings[source.name] = standing.after_failure(now, random.random())


def _heard(result: asyncio.Future[bytes]) -> None:
    """Take note of a failure that nobody waits for."""
    if not result.cancelled():
        result.exception()
