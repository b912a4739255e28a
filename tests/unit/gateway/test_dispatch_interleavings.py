"""Whatever comes in whatever order: each request ends once, and nothing of it stays behind anywhere."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.common.rpc import Priority, Status
from copydesk.gateway.dispatch import Delivery, Dispatch
from copydesk.gateway.faults import ApiError
from copydesk.gateway.lane.resumption import Resumption
from copydesk.gateway.service import Gateway
from copydesk.routing import Ticket
from tests.unit.gateway.virtual_fleet import PAYLOAD, Call, VirtualFleet
from tests.unit.loadtest.virtual_time import run_virtually

Script = list[tuple[Any, ...]]

index = st.integers(0, 40)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.sampled_from([0.05, 0.5, 5.0]), st.sampled_from(Priority), st.booleans()),
        st.tuples(st.just("submit"), st.just(2.0), st.just(Priority.INTERACTIVE), st.booleans()),
        st.tuples(st.just("resume"), st.sampled_from([-0.01, 0.05, 0.5, 5.0])),
        st.tuples(st.just("end"), index, st.just(Status.OK)),
        st.tuples(st.just("end"), index, st.sampled_from(Status)),
        st.tuples(st.just("chunk"), index),
        st.tuples(st.just("cancel"), index),
        st.tuples(st.just("lose"), st.integers(0, 3)),
        st.tuples(st.just("drain"), st.integers(0, 3)),
        st.tuples(st.just("ask_another"), index),
        st.tuples(st.just("wait"), st.sampled_from([0.0, 0.01, 0.1, 0.6, 3.0])),
    ),
    max_size=50,
)


class World:
    """Four pods that do what the script says, and what has come of each request."""

    def __init__(self, fleet: VirtualFleet, gateway: Gateway) -> None:
        self.fleet = fleet
        self.gateway = gateway
        self.dispatches: list[Dispatch] = []
        self.outcomes: list[list[Delivery | ApiError]] = []
        self.cancelled: set[int] = set()
        self.streamed: list[int] = []

    def calls(self) -> list[Call]:
        pods = self.fleet.pods.values()
        return [call for pod in pods if pod.channel is not None for call in pod.channel.calls.values()]

    def end(self, which: int, status: Status) -> None:
        if calls := self.calls():
            calls[which % len(calls)].end(status)

    def chunk(self, which: int) -> None:
        if calls := self.calls():
            calls[which % len(calls)].chunk()

    def cancel(self, which: int) -> None:
        if self.dispatches:
            which %= len(self.dispatches)
            if not self.outcomes[which]:
                self.cancelled.add(which)
            self.dispatches[which].cancel()

    def lose(self, which: int) -> None:
        channel = self.fleet.pods[1000 + which].channel
        if channel is not None:
            channel.lose()

    def drain(self, which: int) -> None:
        channel = self.fleet.pods[1000 + which].channel
        if channel is not None and not channel.closed:
            channel.drain()

    def ask_another(self, which: int) -> None:
        if self.dispatches:
            self.dispatches[which % len(self.dispatches)]._try_beside("hedge")

    def submit(self, seconds: float, priority: Priority, stream: bool) -> None:
        number = len(self.dispatches)
        self.outcomes.append([])
        deadline = asyncio.get_running_loop().time() + seconds
        on_chunk = (lambda _part: self.streamed.append(number)) if stream else None
        self.dispatches.append(
            self.gateway.dispatcher.submit(
                PAYLOAD, deadline, self.outcomes[number].append, priority=priority, on_chunk=on_chunk
            )
        )
        assert self.outcomes[number] == []

    def resume(self, seconds: float) -> None:
        """One that somebody else has let in and sent to a pod."""
        dispatcher, now = self.gateway.dispatcher, asyncio.get_running_loop().time()
        pod = self.gateway.fleet.pick()
        if pod is None or not dispatcher.gate.enter():
            return
        dispatcher.budget.request(now)
        Ticket(pod.ledger, now)
        number = len(self.dispatches)
        self.outcomes.append([])
        where = Resumption(pod, 1_000 + number, now, now + seconds, "a-request")
        dispatch = dispatcher.resume(PAYLOAD, self.outcomes[number].append, where, Priority.INTERACTIVE)
        self.dispatches.append(dispatch)
        assert self.outcomes[number] == []

    def check(self) -> None:
        pods = self.gateway.fleet.pods.values()
        assert sum(pod.ledger.in_flight for pod in pods) == sum(len(pod.underway) for pod in pods)
        assert sum(pod.ledger.in_flight for pod in pods) == len(self.calls())
        unfinished = [n for n, outcome in enumerate(self.outcomes) if not outcome and n not in self.cancelled]
        gate = self.gateway.dispatcher.gate
        assert gate.places.waiting == len(gate.queue)
        assert 0 <= gate.underway <= len(unfinished)
        assert gate.underway + len(gate.queue) <= len(unfinished)
        for number, outcome in enumerate(self.outcomes):
            assert len(outcome) <= (0 if number in self.cancelled else 1)
            dispatch = self.dispatches[number]
            assert len(dispatch._tried) <= 2
            assert len(dispatch._attempts) <= (
                0 if outcome or number in self.cancelled else 1 if dispatch._streaming else 2
            )


async def interleave(monkeypatch: pytest.MonkeyPatch, script: Script, seed: int) -> None:
    monkeypatch.setattr("random.random", random.Random(seed).random)
    fleet = VirtualFleet(monkeypatch)
    for number in range(4):
        fleet.pod(f"p{number}", capacity=2)
    gateway = await fleet.gateway(queue=3, eject_failures=3, eject_ms=100, eject_silence_ms=200, overcommit=1.0)
    world = World(fleet, gateway)
    for step in script:
        if step[0] == "wait":
            await asyncio.sleep(step[1])
        else:
            getattr(world, step[0])(*step[1:])
        world.check()
    await asyncio.sleep(10.0)
    world.check()
    assert world.calls() == []
    assert (gateway.dispatcher.gate.underway, len(gateway.dispatcher.gate.queue)) == (0, 0)
    for number, outcome in enumerate(world.outcomes):
        assert len(outcome) == (0 if number in world.cancelled else 1)
    await gateway.close()


@pytest.fixture(scope="module")
def patches() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@given(script=steps, seed=st.integers(0, 1000))
def test_each_request_ends_once_and_leaves_nothing_in_flight(
    patches: pytest.MonkeyPatch,
    script: Script,
    seed: int,
) -> None:
    run_virtually(interleave(patches, script, seed))
