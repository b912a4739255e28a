"""A queue of deadlines on one timer."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from copydesk.gateway.http.deadlines import Deadlines
from tests.unit.gateway.wire import Clock


@pytest.fixture
async def clock() -> Clock:
    return Clock()


def deadlines(clock: Clock, seconds: float = 5) -> tuple[Deadlines[str], list[str]]:
    due: list[str] = []
    return Deadlines(cast(asyncio.AbstractEventLoop, clock), seconds, due.append), due


async def test_each_is_due_in_its_own_time(clock: Clock) -> None:
    waiting, due = deadlines(clock)
    waiting.add("a")
    clock.advance(3)
    waiting.add("b")
    clock.advance(2)
    assert due == ["a"]
    clock.advance(2.9)
    assert due == ["a"]
    clock.advance(0.2)
    assert due == ["a", "b"]


async def test_what_is_discarded_is_not_due_and_keeps_nothing(clock: Clock) -> None:
    waiting, due = deadlines(clock)
    for name in "abc":
        waiting.add(name)
        waiting.discard(name)
        waiting.discard(name)
    assert len(waiting) == 0
    clock.advance(100)
    assert due == []
    assert clock.timers == 0


async def test_there_is_one_timer_however_many_wait(clock: Clock) -> None:
    waiting, _ = deadlines(clock)
    for number in range(100):
        waiting.add(str(number))
    assert clock.timers == 1


async def test_adding_again_begins_anew(clock: Clock) -> None:
    waiting, due = deadlines(clock)
    waiting.add("a")
    clock.advance(4)
    waiting.add("a")
    clock.advance(4)
    assert due == []
    clock.advance(1)
    assert due == ["a"]


async def test_one_may_be_added_while_another_is_due(clock: Clock) -> None:
    due: list[str] = []

    def again(name: str) -> None:
        due.append(name)
        if len(due) < 3:
            waiting.add(name)

    waiting = Deadlines(cast(asyncio.AbstractEventLoop, clock), 5, again)
    waiting.add("a")
    for _ in range(4):
        clock.advance(5)
    assert due == ["a"] * 3
