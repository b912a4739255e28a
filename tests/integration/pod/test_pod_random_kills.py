"""Whatever is killed and whenever, no request hangs."""

import asyncio
import contextlib
import os
import random
import signal
from collections import Counter
from pathlib import Path

import msgspec

from copydesk.common.rpc import Channel, Status
from copydesk.common.tasks import GenerateText, TextPrompt
from tests.integration.pod.running_pod import RunningPod, alive, is_ready, pong_where, running_pod, until

CHILDREN = ("engine-0", "engine-1", "worker-0", "worker-1")
KILLS = 12
DEADLINE_MS = 60_000
ANSWER_SECONDS = 20.0
"""Far above what a request takes, and far below its deadline: one that hangs would be ended by that alone."""

TASK = msgspec.msgpack.encode(GenerateText(TextPrompt("A text:"), 30))


async def client(pod: RunningPod, ends: Counter[Status], stop: asyncio.Event) -> None:
    """Ask one request after the other, on another connection whenever one is lost."""
    channel: Channel | None = None
    while not stop.is_set():
        channel = channel if channel is not None and not channel.closed else await pod.channel()
        async with asyncio.timeout(ANSWER_SECONDS):
            ends[(await channel.call(TASK, deadline_ms=DEADLINE_MS)).status] += 1
        await asyncio.sleep(0.002)
    if channel is not None:
        await channel.close()


async def test_no_request_hangs_when_children_are_killed_at_random(talkative_model: Path, tmp_path: Path) -> None:
    chance = random.Random(5)
    settings = {"ENGINES": 2, "WORKERS": 2, "DEVICE": "null:5", "DTYPE": "auto"}
    with running_pod(talkative_model, tmp_path / "log", **settings) as pod:
        pod.wait_ready()
        await until("all workers", lambda: len(pod.events("worker_ready")) == 2)
        ends: Counter[Status] = Counter()
        stop = asyncio.Event()
        clients = [asyncio.create_task(client(pod, ends, stop)) for _ in range(12)]
        for _ in range(KILLS):
            await asyncio.sleep(chance.uniform(0.05, 0.4))
            victim = pod.pid(chance.choice(CHILDREN))
            if alive(victim):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(victim, signal.SIGKILL)
        await until("all back", lambda: all(alive(pod.pid(child)) for child in CHILDREN))
        stop.set()
        await asyncio.gather(*clients)
        assert set(ends) <= {Status.OK, Status.UNAVAILABLE}, ends
        assert ends[Status.OK] > 0
        channel = await pod.channel()
        await pong_where(channel, lambda pong: is_ready(pong) and pong.load.running + pong.load.queued == 0)
        assert (await channel.call(TASK, deadline_ms=DEADLINE_MS)).status is Status.OK
        await channel.close()
        assert await asyncio.to_thread(pod.terminate) == 0
