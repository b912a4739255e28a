import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from copydesk.common.rpc import (
    PROTOCOL_VERSION,
    Fault,
    Hello,
    InboundCall,
    Load,
    Priority,
    Response,
    RpcServer,
    Status,
    UnixAddress,
)
from copydesk.common.rpc.codec import encode_frame
from copydesk.inference.pod.engine_link import EngineLink

NEVER = 3600.0


class FakeEngine:
    """An RPC server in the engine's place, which holds every call until the test ends it."""

    def __init__(self, path: str, load: Load) -> None:
        self.calls: list[InboundCall] = []
        self.load = load
        self._path = path
        self._server: RpcServer | None = None

    async def start(self) -> None:
        def hello() -> Hello:
            return Hello(PROTOCOL_VERSION, "engine", digest="abc", capacity=self.load.capacity)

        self._server = RpcServer(self.calls.append, hello=hello, load=lambda: self.load)
        await self._server.start(UnixAddress(self._path))

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.close()


@asynccontextmanager
async def linked(
    tmp_path: Path, *, refresh: float = NEVER, load: Load | None = None
) -> AsyncIterator[tuple[EngineLink, FakeEngine]]:
    engine = FakeEngine(str(tmp_path / "engine.sock"), load or Load(running=3, queued=1, capacity=8, step_ms=2.0))
    await engine.start()
    link = EngineLink(str(tmp_path / "engine.sock"), name="worker-0", token="", refresh=refresh, queue=4)
    running = asyncio.create_task(link.run())
    try:
        await until(lambda: link.available and link.load.running == engine.load.running)
        yield link, engine
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await engine.stop()


async def until(look: Callable[[], bool]) -> None:
    async with asyncio.timeout(10.0):
        while not look():  # noqa: ASYNC110 - what is looked at is state, not an event
            await asyncio.sleep(0.005)


def send(link: EngineLink, replies: list[Response]) -> Callable[[], None] | None:
    return link.send(b"\xc0", deadline_ms=60_000, priority=Priority.INTERACTIVE, on_reply=replies.append)


async def test_the_load_is_the_engines_last_word_plus_what_was_sent_since(tmp_path: Path) -> None:
    async with linked(tmp_path) as (link, engine):
        replies: list[Response] = []
        for _ in range(3):
            send(link, replies)
        assert link.load == Load(running=3, queued=1 + 3, capacity=8, step_ms=2.0)
        await until(lambda: len(engine.calls) == 3)
        engine.load = Load(running=5, queued=0, capacity=8, step_ms=2.5)
        engine.calls[0].reply(b"\xc0")
        await until(lambda: len(replies) == 1)
        assert link.load == Load(running=5, queued=0, capacity=8, step_ms=2.5)


async def test_pings_tell_of_what_others_do(tmp_path: Path) -> None:
    async with linked(tmp_path, refresh=0.01) as (link, engine):
        engine.load = Load(running=8, queued=9, capacity=8, step_ms=2.0)
        await until(lambda: link.load == engine.load)


async def test_a_cancelled_request_is_cancelled_at_the_engine_and_not_answered(tmp_path: Path) -> None:
    async with linked(tmp_path) as (link, engine):
        replies: list[Response] = []
        cancel = send(link, replies)
        assert cancel is not None
        await until(lambda: len(engine.calls) == 1)
        cancel()
        await until(lambda: engine.calls[0].cancelled)
        assert replies == []


async def test_a_lost_engine_answers_what_it_had_refuses_what_is_new_and_is_found_again(tmp_path: Path) -> None:
    async with linked(tmp_path) as (link, engine):
        replies: list[Response] = []
        send(link, replies)
        await until(lambda: len(engine.calls) == 1)
        await engine.stop()
        await until(lambda: len(replies) == 1)
        lost = replies[0]
        assert lost.fault is not None
        assert (lost.status, lost.fault.code) == (Status.UNAVAILABLE, "engine_unavailable")
        assert not link.available
        assert send(link, replies) is None
        await engine.start()
        await until(lambda: link.available)
        assert link.digest == "abc"
        assert send(link, replies) is not None


async def test_what_the_engine_refuses_is_passed_on_as_it_is(tmp_path: Path) -> None:
    async with linked(tmp_path) as (link, engine):
        replies: list[Response] = []
        send(link, replies)
        await until(lambda: len(engine.calls) == 1)
        engine.calls[0].fail(Status.OVERLOADED, Fault("queue_full", "full", 120))
        await until(lambda: len(replies) == 1)
        assert (replies[0].status, replies[0].fault) == (Status.OVERLOADED, Fault("queue_full", "full", 120))


async def test_a_frozen_engine_is_given_up_with_what_it_was_asked(tmp_path: Path) -> None:
    async def greet_and_freeze(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(encode_frame(Hello(PROTOCOL_VERSION, "engine", digest="abc", capacity=8)))
        await reader.read(-1)
        writer.close()

    path = str(tmp_path / "engine.sock")
    server = await asyncio.start_unix_server(greet_and_freeze, path)
    link = EngineLink(path, name="worker-0", token="", refresh=NEVER, queue=4, patience=0.2)
    running = asyncio.create_task(link.run())
    replies: list[Response] = []
    await until(lambda: link.available)
    assert send(link, replies) is not None
    await until(lambda: len(replies) == 1)
    assert replies[0].fault is not None
    assert (replies[0].status, replies[0].fault.code) == (Status.UNAVAILABLE, "engine_unavailable")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    server.close()
