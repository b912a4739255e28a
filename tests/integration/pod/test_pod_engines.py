"""Several engines in a pod, each a process of its own, look like one."""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from copydesk.common.rpc import Channel, Response, Status
from tests.integration.pod.running_pod import (
    RunningPod,
    alive,
    all_run,
    fault,
    is_ready,
    pong_where,
    running_pod,
    until,
)
from tests.integration.pod.text_client import text_of, write

SLOTS = 3
STEP_MS = 100
LONG = text_of(500)
"""50 seconds of a device that takes a step every `STEP_MS`, and far more than a test takes."""

HUNG_SECONDS = 5
"""As long as a pod waits by default, so that tests on a busy machine take nobody for hung who is not."""


@pytest.fixture
def pod(talkative_model: Path, tmp_path: Path) -> Iterator[RunningPod]:
    settings = {"ENGINES": 2, "SLOTS": SLOTS, "CONTEXT": 1024, "DEVICE": f"null:{STEP_MS}", "DTYPE": "auto"}
    settings |= {"DRAFT": "off", "ANSWER_TIMEOUT_MS": HUNG_SECONDS * 1000}
    with running_pod(talkative_model, tmp_path / "log", **settings) as pod:
        pod.wait_ready()
        yield pod


async def fill(channel: Channel, requests: int) -> "asyncio.Queue[Response]":
    """Give the engines that many long requests, and wait until they run."""
    await pong_where(channel, lambda pong: is_ready(pong) and pong.load.capacity == 2 * SLOTS)
    replies: asyncio.Queue[Response] = asyncio.Queue()
    for _ in range(requests):
        channel.send(msgspec.msgpack.encode(LONG), deadline_ms=120_000, on_reply=replies.put_nowait)
    await all_run(channel, replies, requests)
    return replies


async def test_they_share_the_requests_and_one_that_dies_fails_its_own_alone(pod: RunningPod) -> None:
    channel = await pod.channel()
    replies = await fill(channel, 2 * SLOTS)
    os.kill(pod.pid("engine-0"), signal.SIGKILL)
    lost = [fault(await asyncio.wait_for(replies.get(), 30.0)) for _ in range(SLOTS)]
    assert lost == [(Status.UNAVAILABLE, "engine_unavailable")] * SLOTS
    pong = await pong_where(channel, lambda pong: pong.load.running == SLOTS)
    assert is_ready(pong)
    await pong_where(channel, lambda pong: pong.load.capacity == 2 * SLOTS)
    assert [event["state"] for event in pod.events("pod_state")] == ["warming", "ready"]
    await channel.close()


async def test_while_one_is_away_the_other_takes_all(pod: RunningPod) -> None:
    channel = await pod.channel()
    await pong_where(channel, lambda pong: pong.load.capacity == 2 * SLOTS)
    for attempt in range(3):
        os.kill(pod.pid("engine-1"), signal.SIGKILL)
        await until("its death", lambda: len(pod.events("child_died", child="engine-1")) == attempt + 1)  # noqa: B023
        await pong_where(channel, lambda pong: pong.load.capacity == SLOTS)
        short = await write(channel, text_of(3))
        assert short.text.completion_tokens == 3
        await pong_where(channel, lambda pong: pong.load.capacity == 2 * SLOTS)
    await channel.close()


async def test_a_frozen_one_is_replaced_while_the_other_works(pod: RunningPod) -> None:
    channel = await pod.channel()
    replies = await fill(channel, 2)
    frozen, other = pod.pid("engine-0"), pod.pid("engine-1")
    os.kill(frozen, signal.SIGSTOP)
    assert fault(await asyncio.wait_for(replies.get(), 30.0)) == (Status.UNAVAILABLE, "engine_unavailable")
    await until("another in its place", lambda: pod.pid("engine-0") != frozen)
    await pong_where(channel, lambda pong: pong.load.capacity == 2 * SLOTS)
    assert pod.pid("engine-1") == other
    assert replies.empty()
    await channel.close()


async def test_a_pod_that_was_frozen_as_a_whole_goes_on_as_if_nothing_had_been(pod: RunningPod) -> None:
    channel = await pod.channel()
    replies = await fill(channel, 2)
    # The engines first, and the watchers last, so that these wait for answers while time passes them by.
    frozen = [*map(pod.pid, ("engine-0", "engine-1", "worker-0")), pod.process.pid]
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
        await asyncio.sleep(0.2)
    await asyncio.sleep(1.5 * HUNG_SECONDS)
    for pid in reversed(frozen):
        os.kill(pid, signal.SIGCONT)
    await all_run(channel, replies, 2)
    await asyncio.sleep(0.5)
    await all_run(channel, replies, 2)
    assert all(map(alive, frozen))
    assert not pod.events("child_killed")
    await channel.close()
