import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from copydesk.common.rpc import Response, Status
from tests.integration.pod.running_pod import RunningPod, ask, fault, is_ready, pong_where, running_pod


@pytest.fixture(scope="module")
def pod(endless_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPod]:
    log = tmp_path_factory.mktemp("pod") / "log"
    with running_pod(endless_model, log, SLOTS=1, QUEUE=2, CONTEXT=100_000) as pod:
        pod.wait_ready()
        yield pod


async def test_what_the_queue_does_not_hold_is_refused_with_a_time_to_come_back(pod: RunningPod) -> None:
    channel = await pod.channel()
    await pong_where(channel, is_ready)
    refused: asyncio.Queue[Response] = asyncio.Queue()
    ids = [channel.send(ask("Endless."), deadline_ms=60_000, on_reply=refused.put_nowait) for _ in range(8)]
    responses = [await asyncio.wait_for(refused.get(), 20.0) for _ in range(5)]
    assert {fault(response) for response in responses} == {(Status.OVERLOADED, "queue_full")}
    assert all(response.fault and response.fault.retry_after_ms > 0 for response in responses)
    # A worker counts what it has sent to the engine until it knows what became of it.
    pong = await pong_where(channel, lambda pong: (pong.load.running, pong.load.queued) == (1, 2))
    assert pong.load.capacity == 1
    for request_id in ids:
        channel.cancel(request_id)
    await pong_where(channel, lambda pong: pong.load.running + pong.load.queued == 0)
    assert refused.empty()
    await channel.close()


async def test_a_cancelled_request_leaves_its_slot_to_the_next(pod: RunningPod) -> None:
    channel = await pod.channel()
    await pong_where(channel, is_ready)
    replies: list[Response] = []
    request_id = channel.send(ask("Endless."), deadline_ms=60_000, on_reply=replies.append)
    await pong_where(channel, lambda pong: pong.load.running == 1)
    channel.cancel(request_id)
    await pong_where(channel, lambda pong: pong.load.running == 0)
    assert replies == []
    await channel.close()


async def test_a_lost_connection_frees_what_ran_for_it(pod: RunningPod) -> None:
    lost, kept = await pod.channel(), await pod.channel()
    await pong_where(kept, is_ready)
    lost.send(ask("Endless."), deadline_ms=60_000, on_reply=lambda _: None)
    await pong_where(kept, lambda pong: pong.load.running == 1)
    await lost.close()
    await pong_where(kept, lambda pong: pong.load.running == 0)
    await kept.close()


async def test_a_request_that_runs_into_its_deadline_leaves_the_engine(pod: RunningPod) -> None:
    channel = await pod.channel()
    await pong_where(channel, is_ready)
    response = await channel.call(ask("Endless."), deadline_ms=400)
    assert response.status is Status.DEADLINE_EXCEEDED
    await pong_where(channel, lambda pong: pong.load.running + pong.load.queued == 0)
    await channel.close()
