import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from copydesk.common.messages import EndpointState
from copydesk.common.rpc import (
    PROTOCOL_VERSION,
    Hello,
    InboundCall,
    Load,
    Priority,
    Response,
    RpcServer,
    Status,
    UnixAddress,
)
from copydesk.inference.pod.engine_link import EngineLink
from copydesk.inference.pod.engines import Engines, Refusal
from tests.fixtures.until import until

CAPACITY, QUEUE = 2, 1
PLACES = CAPACITY + QUEUE


class FakeEngine:
    """Holds every call until the test ends it."""

    def __init__(self, path: Path) -> None:
        self.calls: list[InboundCall] = []
        self._path = path
        self._server: RpcServer | None = None

    async def start(self) -> None:
        self._server = RpcServer(
            self.calls.append,
            hello=lambda: Hello(PROTOCOL_VERSION, "engine", digest="abc", capacity=CAPACITY),
            load=lambda: Load(running=len(self.calls), capacity=CAPACITY),
        )
        await self._server.start(UnixAddress(str(self._path)))

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.close()


@asynccontextmanager
async def two_engines(tmp_path: Path) -> AsyncIterator[tuple[Engines, list[FakeEngine]]]:
    paths = [tmp_path / "engine-0.sock", tmp_path / "engine-1.sock"]
    fakes = [FakeEngine(path) for path in paths]
    for fake in fakes:
        await fake.start()
    engines = Engines(
        [EngineLink(str(path), name="worker-0", token="", refresh=0.01, queue=QUEUE) for path in paths]
    )
    running = asyncio.create_task(engines.run())
    try:
        await until(lambda: engines.load.capacity == 2 * CAPACITY)
        yield engines, fakes
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        for fake in fakes:
            await fake.stop()


def send(
    engines: Engines, replies: list[Response], priority: Priority = Priority.INTERACTIVE
) -> Callable[[], None] | Refusal:
    return engines.send(b"\xc0", deadline_ms=60_000, priority=priority, on_reply=replies.append)


async def test_requests_are_shared_out_among_the_engines(tmp_path: Path) -> None:
    async with two_engines(tmp_path) as (engines, fakes):
        for _ in range(4):
            send(engines, [])
        await until(lambda: [len(fake.calls) for fake in fakes] == [2, 2])
        await until(lambda: engines.load.running == 4)


async def test_one_that_is_down_is_passed_over_and_what_it_had_is_answered_at_once(tmp_path: Path) -> None:
    async with two_engines(tmp_path) as (engines, fakes):
        replies: list[Response] = []
        for _ in range(2):
            send(engines, replies)
        await until(lambda: [len(fake.calls) for fake in fakes] == [1, 1])
        await fakes[0].stop()
        await until(lambda: len(replies) == 1)
        assert replies[0].status is Status.UNAVAILABLE
        assert engines.state is EndpointState.READY
        assert engines.load.capacity == CAPACITY
        send(engines, replies)
        await until(lambda: len(fakes[1].calls) == 2)


async def test_without_any_engine_the_pod_is_unavailable(tmp_path: Path) -> None:
    async with two_engines(tmp_path) as (engines, fakes):
        for fake in fakes:
            await fake.stop()
        await until(lambda: engines.state is EndpointState.WARMING)
        refusal = send(engines, [])
        assert isinstance(refusal, Refusal)
        assert (refusal.status, refusal.fault.code) == (Status.UNAVAILABLE, "engine_unavailable")
        assert engines.digest == "abc"


async def test_what_surely_finds_no_room_is_refused_without_asking(tmp_path: Path) -> None:
    async with two_engines(tmp_path) as (engines, fakes):
        replies: list[Response] = []
        sent = [send(engines, replies) for _ in range(2 * PLACES + 3)]
        refused = [each for each in sent if isinstance(each, Refusal)]
        assert [(each.status, each.fault.code) for each in refused] == [(Status.OVERLOADED, "queue_full")] * 3
        assert all(each.fault.retry_after_ms > 0 for each in refused)
        await until(lambda: sum(len(fake.calls) for fake in fakes) == 2 * PLACES)
        fakes[0].calls[0].reply(b"\xc0")
        await until(lambda: len(replies) == 1)
        assert callable(send(engines, replies))


async def test_what_was_cancelled_takes_no_room(tmp_path: Path) -> None:
    async with two_engines(tmp_path) as (engines, _):
        sent = [send(engines, []) for _ in range(2 * PLACES)]
        assert isinstance(send(engines, []), Refusal)
        cancel = sent[0]
        assert callable(cancel)
        cancel()
        cancel()
        assert callable(send(engines, []))
        assert isinstance(send(engines, []), Refusal)


async def test_batch_work_that_waits_does_not_keep_interactive_work_from_the_engine(tmp_path: Path) -> None:
    async with two_engines(tmp_path) as (engines, fakes):
        for _ in range(2 * PLACES):
            assert callable(send(engines, [], Priority.BATCH))
        assert isinstance(send(engines, [], Priority.BATCH), Refusal)
        assert callable(send(engines, [], Priority.INTERACTIVE))
        await until(lambda: sum(len(fake.calls) for fake in fakes) == 2 * PLACES + 1)
