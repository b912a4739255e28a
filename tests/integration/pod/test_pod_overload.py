"""A pod that is asked for more than it can do, seen from outside."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest

from copydesk.common.rpc import Channel, Priority, Response, Status
from tests.integration.pod.running_pod import RunningPod, is_ready, pong_where, running_pod
from tests.integration.pod.text_client import text_of

SLOTS, QUEUE = 4, 8
TOKENS, STEP_MS = 40, 25
"""A request takes a second."""


@pytest.fixture(scope="module", params=[1, 2], ids=["one worker", "two workers"])
def pod(
    request: pytest.FixtureRequest, talkative_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningPod]:
    settings = {"WORKERS": request.param, "SLOTS": SLOTS, "QUEUE": QUEUE, "DEVICE": f"null:{STEP_MS}"}
    with running_pod(talkative_model, tmp_path_factory.mktemp("pod") / "log", DTYPE="auto", **settings) as pod:
        pod.wait_ready()
        yield pod


@pytest.fixture
async def channels(pod: RunningPod) -> AsyncIterator[list[Channel]]:
    channels = [await pod.channel() for _ in range(4)]
    for channel in channels:
        await pong_where(channel, lambda pong: is_ready(pong) and pong.load.running + pong.load.queued == 0)
    yield channels
    await asyncio.gather(*(channel.close() for channel in channels))


def send(channel: Channel, replies: "asyncio.Queue[tuple[str, Response]]", name: str, priority: Priority) -> None:
    channel.send(
        msgspec.msgpack.encode(text_of(TOKENS)),
        deadline_ms=60_000,
        priority=priority,
        on_reply=lambda response: replies.put_nowait((name, response)),
    )


async def ends(replies: "asyncio.Queue[tuple[str, Response]]", count: int) -> list[tuple[str, Response]]:
    return [await asyncio.wait_for(replies.get(), 30.0) for _ in range(count)]


async def test_ten_times_the_capacity_is_answered_and_refusals_come_first(channels: list[Channel]) -> None:
    burst, places = 10 * SLOTS, SLOTS + QUEUE
    replies: asyncio.Queue[tuple[str, Response]] = asyncio.Queue()
    for number in range(burst):
        send(channels[number % len(channels)], replies, str(number), Priority.INTERACTIVE)
    statuses = []
    for _, response in await ends(replies, burst):
        statuses.append(response.status)
        if response.status is Status.OVERLOADED:
            assert response.fault is not None
            assert response.fault.code == "queue_full"
            assert response.fault.retry_after_ms > 0
    assert statuses == [Status.OVERLOADED] * (burst - places) + [Status.OK] * places


async def test_interactive_work_overtakes_batch_work_that_waits(channels: list[Channel]) -> None:
    replies: asyncio.Queue[tuple[str, Response]] = asyncio.Queue()
    for number in range(SLOTS + QUEUE - 1):
        send(channels[number % len(channels)], replies, "batch", Priority.BATCH)
    await pong_where(channels[0], lambda pong: pong.load.running + pong.load.queued == SLOTS + QUEUE - 1)
    send(channels[0], replies, "interactive", Priority.INTERACTIVE)
    ended = [name for name, response in await ends(replies, SLOTS + QUEUE) if response.status is Status.OK]
    assert len(ended) == SLOTS + QUEUE
    # The first round was under way when it came; it is of the second, and batch work is left for the third.
    assert ended.index("interactive") < 2 * SLOTS


async def test_interactive_work_takes_the_place_of_batch_work_in_a_full_queue(channels: list[Channel]) -> None:
    replies: asyncio.Queue[tuple[str, Response]] = asyncio.Queue()
    places = SLOTS + QUEUE
    for number in range(places):
        send(channels[number % len(channels)], replies, "batch", Priority.BATCH)
    await pong_where(channels[0], lambda pong: pong.load.running + pong.load.queued == places)
    for number in range(QUEUE):
        send(channels[number % len(channels)], replies, "interactive", Priority.INTERACTIVE)
    ended = await ends(replies, places + QUEUE)
    refused = [name for name, response in ended if response.status is Status.OVERLOADED]
    answered = [name for name, response in ended if response.status is Status.OK]
    assert refused == ["batch"] * QUEUE
    assert sorted(answered) == ["batch"] * SLOTS + ["interactive"] * QUEUE
