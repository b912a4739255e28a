"""What a user of the fleet must not notice: dead pods, dead engines, no NATS, an end in the middle of the load."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import httpx
import psutil
import pytest

from copydesk.loadtest import CorrectSender, Plan, Report, open_client, run
from tests.fixtures.fleet import Fleet
from tests.fixtures.sentences import sentences

RATE = 40.0


async def load(fleet: Fleet, seconds: float) -> Report:
    async with open_client(fleet.url) as client:
        plan = Plan.constant(RATE, seconds)
        return await run(plan, CorrectSender(client, sentences()))


def victim(fleet: Fleet, kind: str) -> int:
    """The process of pod-1 to kill: its supervisor, or the engine or worker below it."""
    pod = psutil.Process(fleet.pid("pod-1"))
    if kind == "pod":
        return pod.pid
    found = [child for child in pod.children(recursive=True) if kind in child.name() or kind in child.cmdline()]
    assert found, [child.cmdline() for child in pod.children(recursive=True)]
    return found[0].pid


async def pods(client: httpx.AsyncClient) -> dict[str, Any]:
    return {pod["id"]: pod for pod in (await client.get("/v1/fleet")).json()["pods"]}


async def until_both_ready(fleet: Fleet, seconds: float) -> None:
    async with asyncio.timeout(seconds), httpx.AsyncClient(base_url=fleet.url) as client:
        while not both_ready(await pods(client)):  # noqa: ASYNC110 - another process's state
            await asyncio.sleep(0.1)


def both_ready(found: dict[str, Any]) -> bool:
    expected = (found.get("pod-1"), found.get("pod-2"))
    return all(pod is not None and pod["connected"] and pod["state"] == "ready" for pod in expected)


@pytest.mark.parametrize("kind", ["pod", "engine", "worker"])
async def test_killing_a_part_of_one_pod_fails_no_request_and_the_pod_comes_back(
    lasting_fleet: Fleet, kind: str
) -> None:
    before = len(lasting_fleet.events)
    loading = asyncio.create_task(load(lasting_fleet, 8.0))
    await asyncio.sleep(2.0)
    os.kill(victim(lasting_fleet, kind), signal.SIGKILL)
    report = await loading
    assert report.failed == 0, (report, lasting_fleet.story())
    assert report.ok == report.sent == report.planned
    if kind == "pod":
        lasting_fleet.wait_for("child_exited", name="pod-1", timeout=5, after=before)
        lasting_fleet.wait_for("restarted", name="pod-1", timeout=20, after=before)
    await until_both_ready(lasting_fleet, 20.0)


async def test_requests_go_on_while_nats_is_away_for_twenty_seconds(lasting_fleet: Fleet) -> None:
    before = len(lasting_fleet.events)
    nats = lasting_fleet.pid("nats")
    os.kill(nats, signal.SIGSTOP)
    try:
        report = await load(lasting_fleet, 20.0)
    finally:
        os.kill(nats, signal.SIGCONT)
    assert report.failed == 0, (report, lasting_fleet.story())
    after = await load(lasting_fleet, 5.0)
    assert after.failed == 0, (after, lasting_fleet.story())
    await until_both_ready(lasting_fleet, 20.0)
    assert not [event for event in lasting_fleet.events[before:] if event["event"] == "child_exited"]


async def test_requests_go_on_when_nats_dies_and_comes_back(lasting_fleet: Fleet) -> None:
    before = len(lasting_fleet.events)
    loading = asyncio.create_task(load(lasting_fleet, 10.0))
    await asyncio.sleep(2.0)
    os.kill(lasting_fleet.pid("nats"), signal.SIGKILL)
    report = await loading
    assert report.failed == 0, (report, lasting_fleet.story())
    lasting_fleet.wait_for("restarted", name="nats", timeout=20, after=before)
    os.kill(lasting_fleet.pid("pod-2"), signal.SIGKILL)
    lasting_fleet.wait_for("restarted", name="pod-2", timeout=30, after=before)
    await until_both_ready(lasting_fleet, 20.0)


async def test_requests_go_on_when_discovery_dies(lasting_fleet: Fleet) -> None:
    before = len(lasting_fleet.events)
    loading = asyncio.create_task(load(lasting_fleet, 6.0))
    await asyncio.sleep(1.0)
    os.kill(lasting_fleet.pid("eds"), signal.SIGKILL)
    report = await loading
    assert report.failed == 0, (report, lasting_fleet.story())
    lasting_fleet.wait_for("restarted", name="eds", timeout=20, after=before)
    await until_both_ready(lasting_fleet, 20.0)


async def test_what_was_accepted_is_answered_when_the_fleet_is_told_to_stop(tiny_fleet: Fleet) -> None:
    texts = [" ".join(sentences(150, seed=seed)) for seed in range(12)]
    async with httpx.AsyncClient(base_url=tiny_fleet.url, timeout=60) as client:
        asked = [asyncio.create_task(client.post("/v1/correct", json={"text": text})) for text in texts]
        async with asyncio.timeout(10), httpx.AsyncClient(base_url=tiny_fleet.url) as watcher:
            while await requests_in_flight(watcher) < len(texts):
                assert not any(task.done() for task in asked), "the load was over before all of it was accepted"
        tiny_fleet.process.send_signal(signal.SIGTERM)
        answers = await asyncio.gather(*asked)
    assert [answer.status_code for answer in answers] == [200] * len(texts), tiny_fleet.story()
    assert await asyncio.to_thread(tiny_fleet.process.wait, 60) == 0
    async with httpx.AsyncClient() as client:
        with pytest.raises(httpx.ConnectError):
            await client.get(tiny_fleet.url)
    assert not [event for event in tiny_fleet.events if event["event"] in ("child_exited", "child_killed")]


async def requests_in_flight(client: httpx.AsyncClient) -> int:
    """Corrections being worked on; the request that asks is not one."""
    metrics = (await client.get("/metrics")).text
    (line,) = [line for line in metrics.splitlines() if line.startswith("copydesk_gateway_requests_in_flight ")]
    return int(float(line.split()[1])) - 1


async def test_killing_the_supervisor_leaves_nothing_behind(tiny_fleet: Fleet) -> None:
    family = psutil.Process(tiny_fleet.process.pid).children(recursive=True)
    assert len(family) >= 9
    tiny_fleet.process.kill()
    _, alive = psutil.wait_procs(family, timeout=10)
    assert not alive, alive
