"""The fetcher: each sector once, the urgent ones first, again while a reader waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest
from prometheus_client import CollectorRegistry

from copydesk.imagefetcher.fetch import fetcher as fetcher_module
from copydesk.imagefetcher.fetch.agenda import Priority
from copydesk.imagefetcher.fetch.errors import Fault, FetchError, SourceError
from copydesk.imagefetcher.fetch.fetcher import Fetcher, Terms
from copydesk.imagefetcher.fetch.place import Place
from copydesk.imagefetcher.fetch.source import Source, SourceKind
from copydesk.imagefetcher.metrics import Metrics
from tests.fixtures.lazy_image import SMALL_SECTOR, LazyImage, plain_image

IMAGE: LazyImage = plain_image(8)


def place(number: int) -> Place:
    return Place("image", number, IMAGE.index.data)


def content(number: int) -> bytes:
    return IMAGE.device[number * SMALL_SECTOR :][:SMALL_SECTOR]


class Scripted:
    """A source that fails as often as `failures` says, and holds its answers back while `gate` is not set."""

    def __init__(self, name: str = "registry", kind: SourceKind = SourceKind.REGISTRY, failures: int = 0) -> None:
        self.name = name
        self.kind = kind
        self.failures = failures
        self.gate = asyncio.Event()
        self.gate.set()
        self.asked: list[list[int]] = []

    async def fetch(self, run: Sequence[Place]) -> list[bytes]:
        self.asked.append([each.number for each in run])
        await self.gate.wait()
        if self.failures:
            self.failures -= 1
            raise SourceError(self.name, Fault.DIGEST)
        return [content(each.number) for each in run]


class Kept(dict[str, bytes]):
    """A cache that keeps everything."""

    def held(self, place: Place) -> bytes | None:
        return self.get(place.digest)


Make = Callable[..., tuple[Fetcher, Kept]]


@pytest.fixture
def make() -> Make:
    def make(*sources: Source, **terms: float) -> tuple[Fetcher, Kept]:
        kept = Kept()
        chosen = Terms(**{"rounds": 3, **terms})  # type: ignore[arg-type]
        metrics = Metrics(CollectorRegistry())
        return Fetcher(chosen, lambda _: sources, kept.held, kept.__setitem__, metrics), kept

    return make


async def test_all_who_ask_for_a_sector_wait_for_one_request(make: Make) -> None:
    source = Scripted()
    fetcher, kept = make(source)
    contents = await asyncio.gather(
        *(fetcher.want(place(3), priority) for priority in (*reversed(Priority), *Priority))
    )
    assert set(contents) == {content(3)}
    assert source.asked == [[3]]
    await fetcher.settled([place(3)])
    assert kept == {place(3).digest: content(3)}
    assert await fetcher.want(place(3), Priority.DEMAND) == content(3)
    assert source.asked == [[3]]


async def test_a_reader_overtakes_what_is_fetched_ahead(make: Make) -> None:
    source = Scripted()
    fetcher, _ = make(source, demand=1, prefetch=1, background=1, run=1)
    source.gate.clear()
    ahead = [fetcher.want(place(number), Priority.PREFETCH) for number in range(6)]
    await asyncio.sleep(0.01)
    wanted = fetcher.want(place(5), Priority.DEMAND)
    await asyncio.sleep(0.01)
    assert source.asked == [[0], [5]]
    source.gate.set()
    assert await wanted == content(5)
    await asyncio.gather(*ahead)
    assert source.asked == [[0], [5], [1], [2], [3], [4]]


async def test_adjacent_sectors_ahead_come_in_one_request_and_singly_once_that_fails(make: Make) -> None:
    source = Scripted(failures=1)
    fetcher, _ = make(source, run=3, prefetch=1)
    futures = [fetcher.want(place(number), Priority.PREFETCH) for number in (0, 1, 2, 3)]
    assert await asyncio.gather(*futures) == [content(number) for number in range(4)]
    assert source.asked[0] == [0, 1, 2]
    assert [0] in source.asked


async def test_a_reader_s_sector_is_asked_for_again_and_one_ahead_is_not(make: Make) -> None:
    source = Scripted(failures=2)
    fetcher, _ = make(source)
    assert await fetcher.want(place(1), Priority.DEMAND) == content(1)
    assert len(source.asked) == 3
    source.failures = 1
    with pytest.raises(FetchError) as caught:
        await fetcher.want(place(2), Priority.BACKGROUND)
    assert caught.value.last is not None
    assert caught.value.last.fault is Fault.DIGEST
    assert await fetcher.want(place(2), Priority.BACKGROUND) == content(2)


async def test_after_so_many_rounds_the_reader_is_told(make: Make) -> None:
    source = Scripted(failures=100)
    fetcher, _ = make(source, rounds=2)
    with pytest.raises(FetchError):
        await fetcher.want(place(1), Priority.DEMAND)
    assert len(source.asked) == 2


async def test_a_source_that_says_nothing_is_given_up_for_the_next(make: Make) -> None:
    silent, registry = Scripted("mirror", SourceKind.MIRROR), Scripted()
    silent.gate.clear()
    fetcher, _ = make(silent, registry, attempt=0.02)
    assert await fetcher.want(place(1), Priority.DEMAND) == content(1)
    assert await fetcher.want(place(2), Priority.DEMAND) == content(2)
    assert silent.asked == [[1]]  # it rests


async def test_without_any_source_there_is_an_error(make: Make) -> None:
    fetcher, _ = make(rounds=1)
    with pytest.raises(FetchError, match="no source"):
        await fetcher.want(place(1), Priority.DEMAND)


async def test_a_sector_of_two_images_comes_from_the_registry_of_either() -> None:
    broken, whole = Scripted("broken", failures=100), Scripted("whole")
    broken.gate.clear()
    sources: dict[str, Source] = {"image": broken, "twin": whole}
    kept = Kept()
    metrics = Metrics(CollectorRegistry())
    fetcher = Fetcher(Terms(rounds=1), lambda at: [sources[at.image]], kept.held, kept.__setitem__, metrics)
    first = fetcher.want(place(1), Priority.DEMAND)
    second = fetcher.want(Place("twin", 1, IMAGE.index.data), Priority.DEMAND)
    broken.gate.set()
    assert await first == await second == content(1)
    assert whole.asked == [[1]]


async def test_who_waits_when_the_fetcher_closes_is_told(make: Make) -> None:
    source = Scripted()
    source.gate.clear()
    fetcher, _ = make(source, prefetch=1, run=1)
    running, queued = fetcher.want(place(0), Priority.PREFETCH), fetcher.want(place(1), Priority.PREFETCH)
    await asyncio.sleep(0.01)
    await fetcher.close()
    for future in (running, queued):
        with pytest.raises(FetchError):
            await future


async def test_a_peer_is_given_less_time_than_a_registry(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetcher_module, "PEER_PATIENCE_S", 0.02)
    peer = Scripted("peer", SourceKind.PEER)
    peer.gate.clear()
    registry = Scripted()
    fetcher, _ = make(peer, registry, attempt=60.0)
    assert await asyncio.wait_for(fetcher.want(place(0), Priority.DEMAND), 5) == content(0)
    assert (peer.asked, registry.asked) == ([[0]], [[0]])


class Gated(Scripted):
    """A source that holds back each sector until its own gate is set."""

    def __init__(self) -> None:
        super().__init__()
        self.gates = {number: asyncio.Event() for number in range(8)}

    async def fetch(self, run: Sequence[Place]) -> list[bytes]:
        for each in run:
            await self.gates[each.number].wait()
        return await super().fetch(run)


async def test_a_sector_that_is_wanted_again_while_its_neighbours_are_still_fetched_comes_again() -> None:
    """As when the cache is so small that what came first is evicted before the last of the run is there."""
    source = Gated()
    kept = Kept()
    held = [True]

    def look(each: Place) -> bytes | None:
        return content(0) if each.number == 0 and held and held.pop() else None

    fetcher = Fetcher(Terms(run=2), lambda _: [source], look, kept.__setitem__, Metrics(CollectorRegistry()))
    first, second = (fetcher.want(place(number), Priority.PREFETCH) for number in (0, 1))
    assert await first == content(0)
    again = fetcher.want(place(0), Priority.PREFETCH)
    assert again is not first
    source.gates[1].set()
    assert await second == content(1)
    await fetcher.settled([place(1)])
    source.gates[0].set()
    assert await asyncio.wait_for(again, 5) == content(0)
