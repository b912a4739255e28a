"""A pod that is killed, or stands still as a whole or in its engine alone, in a fleet under load."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import time
from datetime import datetime

import psutil
import pytest

from copydesk.chaos.family import called, kin
from tests.faults.conftest import failures, load, p99, until_whole, view
from tests.fixtures.fleet import Fleet

pytestmark = pytest.mark.faults

ROUTED_AWAY_S = 0.1
EJECTED_S = 2.0
FROZEN_S = 10.0
KILLS = 3


def said_at(fleet: Fleet, event: str, pod: str) -> float:
    """When the gateway last logged an event about a pod, in Unix seconds."""
    lines = (fleet.directory / "state" / "logs" / "gateway.log").read_text().splitlines()
    told = [json.loads(line) for line in lines if line.startswith("{")]
    times = [line["timestamp"] for line in told if line["event"] == event and line.get("pod") == pod]
    return datetime.fromisoformat(times[-1]).timestamp()


async def test_a_killed_pod_is_routed_away_from_within_100_ms_and_no_client_sees_it(fleet: Fleet) -> None:
    took = []
    for number in range(KILLS):
        pod = f"pod-{1 + number % 2}"
        before = len(fleet.events)
        loading = asyncio.create_task(load(fleet.url, 6.0))
        await asyncio.sleep(2.0)
        killed = time.time()
        os.kill(fleet.pid(pod), signal.SIGKILL)
        assert failures(await loading) == [], fleet.story()
        await asyncio.to_thread(fleet.wait_for, "restarted", name=pod, timeout=60, after=before)
        await until_whole(fleet)
        took.append(said_at(fleet, "pod_disconnected", pod) - killed)
    # The best of them: how long a busy machine leaves the gateway waiting for its turn is not the gateway's.
    assert min(took) < ROUTED_AWAY_S, took


@pytest.mark.parametrize("part", ["pod", "engine"])
async def test_a_pod_that_stands_still_is_ejected_within_two_seconds_and_answers_are_quick_from_then_on(
    fleet: Fleet, part: str
) -> None:
    loop = asyncio.get_running_loop()
    before = await requests(fleet)
    loading = asyncio.create_task(load(fleet.url, 3.0 + FROZEN_S))
    await asyncio.sleep(3.0)
    # A pod that was broken a moment ago gets nothing yet while the other has time, and without a request there is
    # no evidence, nor anybody who waits: so the one that is asked the most is broken.
    name = max((counts := await requests(fleet)), key=lambda pod: counts[pod] - before.get(pod, 0))
    frozen = kin(fleet.pid(name)) if part == "pod" else called(fleet.pid(name), "engine")
    assert frozen
    began = loop.time()
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    try:
        seen = await until_left_out(fleet, name)
        samples = await loading
    finally:
        for pid in frozen:
            if psutil.pid_exists(pid):
                os.kill(pid, signal.SIGCONT)
    assert failures(samples) == [], fleet.story()
    assert seen - began < EJECTED_S + 1.0  # the gateway is asked ten times a second, and may be slow to tell
    assert p99([sample for sample in samples if sample.planned >= began + EJECTED_S]) < 1.0
    await until_whole(fleet)


async def test_a_pod_that_hangs_while_all_trust_it_since_the_other_has_just_hung_fails_no_request(
    fleet: Fleet,
) -> None:
    """The other has a bad name still and is asked nothing, so that nobody's answers give the silence away."""
    loading = asyncio.create_task(load(fleet.url, 16.0, 5.0))
    await asyncio.sleep(1.0)
    for name in ("pod-1", "pod-2"):
        frozen = called(fleet.pid(name), "engine")
        assert frozen
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(4.5)
        finally:
            for pid in frozen:
                with contextlib.suppress(ProcessLookupError):  # its pod may have replaced it
                    os.kill(pid, signal.SIGCONT)
        await until_whole(fleet)
    samples = await loading
    assert failures(samples) == [], fleet.story()
    assert max(sample.latency for sample in samples) < 3.0
    await until_whole(fleet)


async def requests(fleet: Fleet) -> dict[str, int]:
    """How many requests the gateway has sent to each pod."""
    return {pod["id"]: pod["requests"] for pod in (await view(fleet.url))["pods"]}


async def until_left_out(fleet: Fleet, pod: str) -> float:
    """Wait until the gateway sends a pod nothing more; return when, on the event loop's clock."""
    async with asyncio.timeout(30):
        while True:
            states = {one["id"]: one["state"] for one in (await view(fleet.url))["pods"]}
            if states.get(pod) != "ready":
                return asyncio.get_running_loop().time()
            await asyncio.sleep(0.1)
