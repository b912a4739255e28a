"""What a keeper takes for a hang of its child: a process that sleeps here, while a server answers for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from copydesk.common.rpc import PROTOCOL_VERSION, Hello, Load, RpcServer, UnixAddress
from copydesk.inference.pod import keeper as keeper_module
from copydesk.inference.pod.child import ChildSpec
from copydesk.inference.pod.failure import FailureNote
from copydesk.inference.pod.keeper import Keeper
from copydesk.inference.pod.lifecycle import Patience
from tests.fixtures.until import until

ANSWER = 0.2


class Pings:
    """Answers pings in the child's place, and counts them."""

    def __init__(self) -> None:
        self.count = 0
        self.server = RpcServer(lambda call: None, hello=self._hello, load=self._load)

    def _hello(self) -> Hello:
        return Hello(PROTOCOL_VERSION, "engine-0", digest="abc", capacity=1)

    def _load(self) -> Load:
        self.count += 1
        return Load()


@pytest.fixture(autouse=True)
def sleeping_child(monkeypatch: pytest.MonkeyPatch) -> None:
    async def start(spec: ChildSpec) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec("sleep", "600", start_new_session=True)

    monkeypatch.setattr(keeper_module, "start", start)


@asynccontextmanager
async def answering(folder: Path) -> AsyncIterator[Pings]:
    """Answer pings at the child's socket."""
    pings = Pings()
    await pings.server.start(UnixAddress(str(folder / "engine.sock")))
    try:
        yield pings
    finally:
        await pings.server.close()


@asynccontextmanager
async def kept(folder: Path, restarts: list[str], *, interval: float) -> AsyncIterator[Keeper]:
    """Keep a child that has `ANSWER` seconds for an answer, once it has given one."""
    keeper = Keeper(
        ChildSpec("engine-0", (), str(folder / "engine.sock"), Patience(start=60.0, answer=ANSWER)),
        note=FailureNote(folder, "engine-0"),
        token="",
        interval=interval,
        on_change=lambda: None,
        on_restart=restarts.append,
    )
    running = asyncio.create_task(keeper.run())
    try:
        yield keeper
    finally:
        await keeper.stop(5.0)
        await running


async def test_pings_that_are_rarer_than_an_answer_may_take_are_no_silence(tmp_path: Path) -> None:
    restarts: list[str] = []
    async with answering(tmp_path) as pings, kept(tmp_path, restarts, interval=2 * ANSWER) as keeper:
        await until(lambda: keeper.answer is not None)
        first, answered = keeper.pid, pings.count
        await until(lambda: pings.count >= answered + 3 or bool(restarts))
        assert restarts == []
        assert keeper.pid == first


async def test_a_child_that_answers_no_more_is_killed_and_restarted(tmp_path: Path) -> None:
    restarts: list[str] = []
    async with answering(tmp_path) as pings, kept(tmp_path, restarts, interval=2 * ANSWER) as keeper:
        await until(lambda: keeper.answer is not None)
        first = keeper.pid
        await pings.server.close()
        await until(lambda: keeper.pid not in (None, first))
        assert restarts == ["engine-0"]
