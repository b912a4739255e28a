import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from copydesk.common.rpc import Channel, Response, Status
from tests.integration.pod.running_pod import (
    RunningPod,
    alive,
    all_run,
    ask,
    eventually,
    fault,
    is_ready,
    pong_where,
    running_pod,
)


@pytest.fixture
def pod(endless_model: Path, tmp_path: Path) -> Iterator[RunningPod]:
    with running_pod(endless_model, tmp_path / "log", SLOTS=4, CONTEXT=100_000) as pod:
        pod.wait_ready()
        yield pod


async def hold(channel: Channel, requests: int) -> "asyncio.Queue[Response]":
    """Send requests that do not end by themselves, and wait until the engine runs them."""
    replies: asyncio.Queue[Response] = asyncio.Queue()
    await pong_where(channel, is_ready)
    for _ in range(requests):
        channel.send(ask("Endless."), deadline_ms=120_000, on_reply=replies.put_nowait)
    await all_run(channel, replies, requests)
    return replies


async def all_of(replies: "asyncio.Queue[Response]", requests: int) -> set[tuple[Status, str]]:
    return {fault(await asyncio.wait_for(replies.get(), 30.0)) for _ in range(requests)}


async def test_a_killed_engine_is_restarted_and_its_requests_are_answered_at_once(pod: RunningPod) -> None:
    channel = await pod.channel()
    replies = await hold(channel, 3)
    os.kill(pod.pid("engine-0"), signal.SIGKILL)
    assert await all_of(replies, 3) == {(Status.UNAVAILABLE, "engine_unavailable")}
    meanwhile = await channel.call(ask("Too early."), deadline_ms=5_000)
    assert fault(meanwhile) == (Status.UNAVAILABLE, "engine_unavailable")
    await asyncio.to_thread(pod.wait_ready, 2)
    await hold(channel, 2)
    assert not channel.closed
    (death,) = pod.events("child_died", child="engine-0")
    assert death["how"] == "was killed by SIGKILL"
    await channel.close()


async def test_a_killed_worker_is_restarted_on_the_same_port_and_leaves_the_engine_alone(pod: RunningPod) -> None:
    channel = await pod.channel()
    replies = await hold(channel, 3)
    engine = pod.pid("engine-0")
    os.kill(pod.pid("worker-0"), signal.SIGKILL)
    assert await all_of(replies, 3) == {(Status.UNAVAILABLE, "connection_lost")}
    again = await pod.channel()
    await pong_where(again, lambda pong: is_ready(pong) and pong.load.running == 0)
    await hold(again, 2)
    assert pod.pid("engine-0") == engine
    assert alive(engine)
    await again.close()


async def test_a_frozen_engine_is_noticed_killed_and_replaced(pod: RunningPod) -> None:
    channel = await pod.channel()
    replies = await hold(channel, 3)
    frozen = pod.pid("engine-0")
    os.kill(frozen, signal.SIGSTOP)
    assert await all_of(replies, 3) == {(Status.UNAVAILABLE, "engine_unavailable")}
    await asyncio.to_thread(pod.wait_ready, 2)
    assert pod.events("child_killed", child="engine-0")[0]["reason"] == "left pings unanswered"
    assert pod.pid("engine-0") != frozen
    assert not alive(frozen)
    await channel.close()


async def test_a_frozen_worker_is_noticed_killed_and_replaced(pod: RunningPod) -> None:
    frozen = pod.pid("worker-0")
    os.kill(frozen, signal.SIGSTOP)
    await asyncio.to_thread(pod.wait_ready, 2)
    assert pod.pid("worker-0") != frozen
    channel = await pod.channel()
    await pong_where(channel, is_ready)
    await channel.close()


async def test_a_killed_supervisor_takes_all_with_it(pod: RunningPod) -> None:
    channel = await pod.channel()
    replies = await hold(channel, 2)
    children = [pod.pid("engine-0"), pod.pid("worker-0")]
    pod.process.kill()
    assert await all_of(replies, 2) == {(Status.UNAVAILABLE, "connection_lost")}
    eventually("all gone", lambda: not any(map(alive, children)), timeout=10.0)
    await channel.close()


async def test_a_frozen_engine_does_not_keep_the_pod_from_ending(pod: RunningPod) -> None:
    children = [pod.pid("engine-0"), pod.pid("worker-0")]
    os.kill(children[0], signal.SIGSTOP)
    began = time.monotonic()
    assert await asyncio.to_thread(pod.terminate) == 0
    assert time.monotonic() - began < 20.0
    assert not any(map(alive, children))
