"""Several engines in a pod, each a process of its own, look like one."""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from copydesk.common.rpc import Channel, Response, Status
from copydesk.common.tasks import GenerateText, TextPrompt
from tests.integration.pod.running_pod import RunningPod, fault, is_ready, pong_where, running_pod, until
from tests.integration.pod.text_client import write

SLOTS = 3
STEP_MS = 20
LONG = GenerateText(TextPrompt("A long text, please:"), 500)
"""Ten seconds of a device that takes a step every `STEP_MS`."""


@pytest.fixture
def pod(talkative_model: Path, tmp_path: Path) -> Iterator[RunningPod]:
    settings = {"ENGINES": 2, "SLOTS": SLOTS, "CONTEXT": 1024, "DEVICE": f"null:{STEP_MS}", "DTYPE": "auto"}
    with running_pod(talkative_model, tmp_path / "log", **settings) as pod:
        pod.wait_ready()
        yield pod


async def fill(channel: Channel, requests: int) -> "asyncio.Queue[Response]":
    """Give the engines that many long requests, and wait until they run."""
    await pong_where(channel, lambda pong: is_ready(pong) and pong.load.capacity == 2 * SLOTS)
    replies: asyncio.Queue[Response] = asyncio.Queue()
    for _ in range(requests):
        channel.send(msgspec.msgpack.encode(LONG), deadline_ms=60_000, on_reply=replies.put_nowait)
    await pong_where(channel, lambda pong: pong.load.running == requests)
    return replies


async def test_they_share_the_requests_and_one_that_dies_fails_its_own_alone(pod: RunningPod) -> None:
    channel = await pod.channel()
    replies = await fill(channel, 2 * SLOTS)
    os.kill(pod.pid("engine-0"), signal.SIGKILL)
    lost = [fault(await asyncio.wait_for(replies.get(), 20.0)) for _ in range(SLOTS)]
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
        short = await write(channel, GenerateText(TextPrompt("Short:"), 3))
        assert short.text.completion_tokens == 3
        await pong_where(channel, lambda pong: pong.load.capacity == 2 * SLOTS)
    await channel.close()


async def test_a_frozen_one_is_replaced_while_the_other_works(talkative_model: Path, tmp_path: Path) -> None:
    settings = {"ENGINES": 2, "SLOTS": SLOTS, "CONTEXT": 1024, "DEVICE": f"null:{STEP_MS}", "DTYPE": "auto"}
    with running_pod(talkative_model, tmp_path / "log", ANSWER_TIMEOUT_MS=2_000, **settings) as pod:
        pod.wait_ready()
        channel = await pod.channel()
        replies = await fill(channel, 2)
        frozen = pod.pid("engine-0")
        os.kill(frozen, signal.SIGSTOP)
        assert fault(await asyncio.wait_for(replies.get(), 20.0)) == (Status.UNAVAILABLE, "engine_unavailable")
        await until("another in its place", lambda: pod.pid("engine-0") != frozen)
        await pong_where(channel, lambda pong: pong.load.capacity == 2 * SLOTS)
        await channel.close()
