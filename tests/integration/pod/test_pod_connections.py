"""Connections of gateways are spread evenly over the workers, whatever happens to these."""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from copydesk.common.rpc import Channel, Status
from tests.integration.pod.running_pod import RunningPod, answer, ask, is_ready, pong_where, running_pod, until

WORKERS = 4
CONNECTIONS = 64


@pytest.fixture
def pod(silent_model: Path, tmp_path: Path) -> Iterator[RunningPod]:
    with running_pod(silent_model, tmp_path / "log", WORKERS=WORKERS) as pod:
        pod.wait_ready()
        yield pod


def pids(pod: RunningPod) -> list[int]:
    return [pod.pid(f"worker-{index}") for index in range(WORKERS)]


def spread(pod: RunningPod) -> list[int]:
    """Count the connections of each worker, as the operating system sees them."""
    return [held(pid, pod.port) for pid in pids(pod)]


def held(pid: int, port: int) -> int:
    try:
        connections = psutil.Process(pid).net_connections("tcp")
    except psutil.NoSuchProcess:
        return 0
    return sum(each.laddr.port == port and each.status == psutil.CONN_ESTABLISHED for each in connections)


async def evenly(pod: RunningPod, each: int) -> None:
    """Wait until every worker has that many connections."""
    await until(f"{each} connections for each worker", lambda: spread(pod) == [each] * WORKERS)


async def all_workers(pod: RunningPod) -> None:
    """Wait until the supervisor knows of all workers: until each has been handed a connection."""
    channels = await connect(pod, WORKERS)
    await evenly(pod, 1)
    await close(channels)
    await evenly(pod, 0)


async def connect(pod: RunningPod, count: int) -> list[Channel]:
    return [await pod.channel() for _ in range(count)]


async def serve_all(channels: list[Channel]) -> None:
    """Have each connection correct a sentence."""
    for channel in channels:
        await pong_where(channel, is_ready)
    responses = await asyncio.gather(*(channel.call(ask("It works."), deadline_ms=20_000) for channel in channels))
    assert {answer(response).text for response in responses} == {"It works."}


async def close(channels: list[Channel]) -> None:
    await asyncio.gather(*(channel.close() for channel in channels))


async def test_every_worker_gets_the_same_number_and_again_after_one_was_killed(pod: RunningPod) -> None:
    await all_workers(pod)
    channels = await connect(pod, CONNECTIONS)
    await evenly(pod, CONNECTIONS // WORKERS)

    os.kill(pids(pod)[1], signal.SIGKILL)
    await until("lost connections", lambda: sum(channel.closed for channel in channels) == CONNECTIONS // WORKERS)
    kept = [channel for channel in channels if not channel.closed]
    channels = kept + await connect(pod, CONNECTIONS // WORKERS)
    await evenly(pod, CONNECTIONS // WORKERS)

    assert not any(channel.closed for channel in channels)
    await serve_all(channels)
    await close(channels)


async def test_connections_move_under_load_and_no_request_suffers(pod: RunningPod) -> None:
    await all_workers(pod)
    channels = await connect(pod, 2 * WORKERS)
    await evenly(pod, 2)
    await serve_all(channels)
    statuses: list[Status] = []
    stop = asyncio.Event()

    async def load(channel: Channel) -> None:
        while not stop.is_set():
            statuses.append((await channel.call(ask("It works."), deadline_ms=20_000)).status)

    os.kill(pids(pod)[0], signal.SIGKILL)
    await until("lost connections", lambda: sum(channel.closed for channel in channels) == 2)
    channels = [channel for channel in channels if not channel.closed] + await connect(pod, 2)
    loading = [asyncio.create_task(load(channel)) for channel in channels for _ in range(3)]
    await evenly(pod, 2)
    stop.set()
    await asyncio.gather(*loading)
    assert set(statuses) == {Status.OK}
    assert not any(channel.closed for channel in channels)
    await close(channels)


async def test_a_frozen_worker_keeps_nobody_from_connecting(pod: RunningPod) -> None:
    await all_workers(pod)
    frozen = pids(pod)[2]
    os.kill(frozen, signal.SIGSTOP)
    channels = await connect(pod, 12)
    assert held(frozen, pod.port) == 0
    await serve_all(channels)
    await until("another in its place", lambda: pids(pod)[2] != frozen)
    await evenly(pod, 3)
    await serve_all(channels)
    await close(channels)


async def test_connections_live_on_while_the_supervisor_is_frozen(pod: RunningPod) -> None:
    await all_workers(pod)
    channels = await connect(pod, 8)
    pod.process.send_signal(signal.SIGSTOP)
    try:
        await serve_all(channels)
        waiting = asyncio.create_task(pod.channel())
        await serve_all(channels)
        assert not waiting.done()
    finally:
        pod.process.send_signal(signal.SIGCONT)
    channels.append(await waiting)
    await serve_all(channels)
    await close(channels)
