"""Whatever comes in whatever order: each request is answered once or its client has left, and nothing is left.

On the real event loop, since the lane reads the real clock; what would take long is made to happen by the script.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from copydesk.common.rpc import Fault, Status
from copydesk.gateway.keys import KeyLimits, KeyRing
from tests.integration.gateway.lane.house import Client, House, ask_for, house
from tests.unit.gateway.conftest import eventually, snapshot

KEY = "Authorization: Bearer mine"
PODS = ("a", "b", "c")
RING = KeyRing(
    (("mine", hashlib.sha256(b"mine").digest()),),
    {"mine": KeyLimits(concurrency=12, requests_per_second=100_000, burst=100_000)},
)
LINES: dict[str, tuple[str, ...]] = {
    "plain": (KEY,),
    "soon": (KEY, "X-Request-Deadline-Ms: 20"),
    "named": (KEY, "X-Request-Id: a"),
    "batch": (KEY, "X-Request-Priority: batch"),
}
PATHS = ("/v1/completions", "/v1/chat/completions", "/v1/correct")

which = st.integers(0, 40)
pods = st.sampled_from(PODS)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), which, st.sampled_from(sorted(LINES)), st.sampled_from(PATHS[:2])),
        st.tuples(st.just("ask"), which, st.just("plain"), st.sampled_from(PATHS)),
        st.tuples(st.just("stream"), which),
        st.tuples(st.just("half"), which),
        st.tuples(st.just("answer"), which),
        st.tuples(st.just("answer"), which),
        st.tuples(
            st.just("fail"), which, st.sampled_from([status for status in Status if status is not Status.OK])
        ),
        st.tuples(st.just("nonsense"), which),
        st.tuples(st.just("chunk"), which),
        st.tuples(st.just("leave"), which),
        st.tuples(st.just("lose"), pods),
        st.tuples(st.just("remove"), pods),
        st.tuples(st.just("recall_pod"), pods),
        st.tuples(st.just("recall")),
        st.tuples(st.just("forget")),
        st.tuples(st.just("wait"), st.sampled_from([0.0, 0.001, 0.025])),
        st.tuples(st.just("turn"), st.integers(1, 4)),
    ),
    min_size=4,
    max_size=40,
)


class World:
    """Six clients and three pods that do what the script says."""

    def __init__(self, at: House) -> None:
        self.at = at
        self.clients: list[Client] = []
        self.asked: list[int] = []
        self.rests: list[bytes] = []
        self.removed: set[str] = set()

    async def come(self) -> None:
        self.clients = [await self.at.client() for _ in range(6)]
        self.asked = [0] * 6
        self.rests = [b""] * 6

    def ask(self, number: int, lines: str, path: str, **more: object) -> None:
        number %= 6
        rest, self.rests[number] = self.rests[number], b""
        prompt = f"She go {number} {self.asked[number]}." if path == PATHS[2] else "Once upon a time"
        self.clients[number].send(rest + ask_for(prompt, *LINES[lines], path=path, **more))
        self.asked[number] += 1

    def stream(self, number: int) -> None:
        self.ask(number, "plain", PATHS[0], stream=True)

    def half(self, number: int) -> None:
        number %= 6
        if not self.rests[number]:
            whole = ask_for("Half of this", KEY)
            self.clients[number].send(whole[:100])
            self.rests[number] = whole[100:]
            self.asked[number] += 1

    def pick(self, number: int) -> Any:
        held = [one for one in self.at.held() if not one[1].cancelled]
        return held[number % len(held)] if held else None

    def answer(self, number: int) -> None:
        if found := self.pick(number):
            self.at.release(found)

    def fail(self, number: int, status: Status) -> None:
        if found := self.pick(number):
            pod, call, task = found
            pod.held.remove((call, task))
            call.fail(status, Fault("some_fault", "as the script wants it", retry_after_ms=1))

    def nonsense(self, number: int) -> None:
        if found := self.pick(number):
            pod, call, task = found
            pod.held.remove((call, task))
            call.reply(b"\x91\x05")

    def chunk(self, number: int) -> None:
        if found := self.pick(number):
            found[1].chunk(b"\x92\xaatext_chunk\xa1a")

    async def leave(self, number: int) -> None:
        number %= 6
        self.clients[number].leave()
        self.clients[number] = await self.at.client()
        self.asked[number], self.rests[number] = 0, b""

    async def lose(self, name: str) -> None:
        pod = self.at.pods[name]
        await pod.stop()
        pod.held.clear()
        await pod.start(pod.port)

    def remove(self, name: str) -> None:
        self.removed ^= {name}
        self.know()

    def know(self) -> None:
        left = [pod.endpoint() for name, pod in self.at.pods.items() if name not in self.removed]
        self.at.gateway.fleet.apply(snapshot(*left))

    def recall_pod(self, name: str) -> None:
        if (pod := self.at.gateway.fleet.pods.get(name)) is not None:
            pod.recall()

    def recall(self) -> None:
        assert self.at.gateway.lane is not None
        self.at.gateway.lane._lane.recall()

    def forget(self) -> None:
        """Keys were read anew; the next request teaches the lane."""
        self.at.gateway.gatekeeper.use(RING)

    async def wait(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def turn(self, number: int) -> None:
        for _ in range(number):
            await asyncio.sleep(0)

    def check(self) -> None:
        counts = self.at.busy()
        assert min(counts.values(), default=0) >= 0, counts
        assert counts.get("lane", 0) <= counts.get("gate", 0)

    async def end(self) -> None:
        """Let all that was asked come to its end."""
        self.removed.clear()
        self.know()
        self.at.behave("correct")
        for number, rest in enumerate(self.rests):
            self.clients[number].send(rest)
        reading = asyncio.gather(*(self.read(*one) for one in zip(self.clients, self.asked, strict=True)))
        while not reading.done():
            self.at.release()
            await asyncio.wait([reading], timeout=0.005)
        await reading

    async def read(self, client: Client, number: int) -> None:
        """As many answers as were asked for, and nothing behind them."""
        for _ in range(number):
            assert (await client.answer(20)).status in (200, 400, 429, 502, 503, 504)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await client.reader.readexactly(1)


async def interleave(native: ModuleType, script: list[tuple[Any, ...]]) -> None:
    async with house(
        native, *PODS, keys=RING, queue=6, eject_failures=3, eject_ms=20, slow_start_ms=0, retry_floor=5
    ) as at:
        world = World(at)
        for name, lines in LINES.items():
            for path in PATHS if name == "plain" else PATHS[:1]:
                await at.client()
                at.behave("correct")
                await at.clients[-1].ask(
                    "Learn this.", *(line.replace(": 20", ": 2000") for line in lines), path=path
                )
        at.behave("hold")
        await world.come()
        for kind, *how in script:
            done = getattr(world, kind)(*how)
            if done is not None:
                await done
            world.check()
        await world.end()
        await at.idle()
        assert at.gateway.gatekeeper.inside("mine") == 0
        assert at.gateway.lane is not None
        assert at.gateway.lane._lane.underway == 0
        await eventually(lambda: not any(pod.in_flight for pod in at.pods.values()))


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@settings(max_examples=20)
@given(script=steps)
def test_each_request_is_answered_once_and_leaves_nothing(
    native: ModuleType, new_loop: Callable[[], asyncio.AbstractEventLoop], script: list[tuple[Any, ...]]
) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(interleave(native, script))
