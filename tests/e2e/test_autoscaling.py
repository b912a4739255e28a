"""`copydesk up --autoscale` under load that rises and falls: pods come and go, and no request fails.

The pods compute on the null device, which takes its time for each step and no processor time: what a pod can do is
then its own, however small or busy the machine is. What the rules count in minutes is cut down to seconds.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from copydesk.cli.fleet.state import read_state
from copydesk.loadtest import CorrectSender, Sample
from copydesk.loadtest.generator import Flight
from tests.fixtures.fleet import Fleet, running_fleet
from tests.fixtures.sentences import sentences

STEP_MS = 8
SLOTS = 4
"""A sentence takes about 50 steps, 0.4 s: a pod answers ten a second."""
CALM, BUSY = 2.0, 18.0
"""Sentences a second: work for a fifth of a pod, and for two, which is more than two shall do."""

MODELS = """
models:
  - model: tiny
    min_pods: 1
    max_pods: 3
    cold_start_s: 3
    rules:
      memory_s: 5
      shrink_s: 2
      new_leader_s: 5
      panic_s: 3
      guard: 50
"""

pytestmark = pytest.mark.slow


@pytest.fixture
def scaled_fleet(tmp_path: Path, tiny_model: Path) -> Iterator[Fleet]:
    """A fleet of one to three pods, whose autoscaler is in charge."""
    models = tmp_path / "models.yaml"
    models.write_text(MODELS)
    environ = {
        "COPYDESK_INFERENCE_DEVICE": f"null:{STEP_MS}",
        "COPYDESK_INFERENCE_SLOTS": str(SLOTS),
        "COPYDESK_INFERENCE_DRAFT": "off",
        "COPYDESK_GATEWAY_SLOW_START_MS": "500",
        "COPYDESK_AUTOSCALER_MODELS_FILE": str(models),
        "COPYDESK_AUTOSCALER_INTERVAL_MS": "1000",
        "COPYDESK_AUTOSCALER_SETTLE_MS": "1000",
    }
    arguments = ("--model", str(tiny_model), "--autoscale", "1:3")
    with running_fleet(tmp_path / "fleet", *arguments, environ=environ) as fleet:
        fleet.wait_for("child_up", name="autoscaler", timeout=30)
        yield fleet


class Crowd:
    """Users who write at `rate` sentences a second, which may change while they do; open loop."""

    def __init__(self, client: httpx.AsyncClient, rate: float) -> None:
        self.rate = rate
        self._send = CorrectSender(client, sentences(400))
        self._flights: list[Flight] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def write(self) -> None:
        """Write until cancelled."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            await asyncio.sleep(max(0.0, due - loop.time()))
            flight = Flight(due)
            self._tasks.append(asyncio.create_task(flight.fly(self._send, len(self._flights))))
            self._flights.append(flight)
            due += 1.0 / self.rate

    async def all_answered(self) -> None:
        """Wait for the answers to all that was written."""
        await asyncio.gather(*self._tasks)

    @property
    def samples(self) -> list[Sample]:
        """What came of each sentence."""
        return [flight.landed() for flight in self._flights]


def open_client(fleet: Fleet) -> httpx.AsyncClient:
    """A client that gives connections up before the gateway does: else it may send on one that is just closed."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=2.0)
    return httpx.AsyncClient(base_url=fleet.url, timeout=60.0, limits=limits, trust_env=False)


@asynccontextmanager
async def crowd(fleet: Fleet, rate: float) -> AsyncIterator[Crowd]:
    async with open_client(fleet) as client:
        users = Crowd(client, rate)
        writing = asyncio.create_task(users.write())
        try:
            yield users
        finally:
            writing.cancel()
            await asyncio.wait({writing})
            await users.all_answered()


async def happens(fleet: Fleet, event: str, *, timeout: float, after: int = 0, **fields: object) -> dict[str, Any]:
    return await asyncio.to_thread(fleet.wait_for, event, timeout=timeout, after=after, **fields)


def sizes(fleet: Fleet, after: int = 0) -> list[tuple[int, int]]:
    return [(event["before"], event["pods"]) for event in fleet.events[after:] if event["event"] == "scaled"]


def p90(samples: Sequence[Sample], since: float, until: float) -> float:
    latencies = sorted(sample.latency for sample in samples if since <= sample.planned < until)
    assert len(latencies) >= 20, (len(latencies), since, until)
    return latencies[int(0.9 * len(latencies))]


def pod_processes(fleet: Fleet) -> list[psutil.Process]:
    """The processes of all pods, by what the fleet's state file says."""
    state = read_state(fleet.directory / "state")
    assert state is not None
    return [psutil.Process(process.pid) for process in state.processes if process.role == "pod" and process.pid]


async def test_pods_come_with_the_load_and_go_with_it_and_no_request_fails(scaled_fleet: Fleet) -> None:
    fleet, clock = scaled_fleet, asyncio.get_running_loop().time
    async with crowd(fleet, CALM) as users:
        await asyncio.sleep(2.0)
        assert sizes(fleet) == []
        rose = clock()
        users.rate = BUSY
        for name in ("pod-2", "pod-3"):
            await happens(fleet, "child_up", name=name, timeout=40)
        grown = clock()
        grew = [pods for _, pods in sizes(fleet)]
        async with open_client(fleet) as client:
            told = (await client.get("/v1/fleet/history")).json()["scale_decisions"]
        state = read_state(fleet.directory / "state")
        assert state is not None
        assert state.scaling is not None
        assert (state.pods, state.scaling.pods) == (("pod-1", "pod-2", "pod-3"), 3)
        await asyncio.sleep(10.0)
        assert sizes(fleet)[-1][1] == 3
        fell = clock()
        users.rate = CALM
        for name in ("pod-3", "pod-2"):
            await happens(fleet, "drained", name=name, timeout=40, how="exited with code 0")
        await asyncio.sleep(1.0)
    samples = users.samples

    failures = [sample.failure for sample in samples if sample.failure is not None]
    assert not failures, (failures[:3], fleet.story())
    # Whatever the machine does beside it: with one pod a queue grows, with three there is none.
    assert p90(samples, grown + 5.0, fell) < 0.6 * p90(samples, rose, grown), fleet.story()
    assert sizes(fleet)[0][0] == min(pods for _, pods in sizes(fleet)) == 1
    assert [pods for pods, _ in groupby(decision["replicas"] for decision in told)] == [1, *grew]
    assert all(event["reason"] for event in fleet.events if event["event"] == "scaled")
    assert not [
        event for event in fleet.events if event["event"] in ("child_exited", "child_killed", "decision_refused")
    ]


async def test_neither_the_autoscalers_death_nor_that_of_nats_or_of_a_draining_pod_is_felt(
    scaled_fleet: Fleet,
) -> None:
    fleet = scaled_fleet
    async with crowd(fleet, BUSY) as users:
        await happens(fleet, "scaled", timeout=20)
        os.kill(fleet.pid("autoscaler"), signal.SIGKILL)
        await happens(fleet, "restarted", name="autoscaler", timeout=30)
        await happens(fleet, "child_up", name="pod-3", timeout=40)

        before = len(fleet.events)
        os.kill(fleet.pid("nats"), signal.SIGKILL)
        await happens(fleet, "restarted", name="nats", timeout=20, after=before)
        await asyncio.sleep(3.0)
        assert all(pods > before for before, pods in sizes(fleet)), fleet.story()

        users.rate = CALM
        async with open_client(fleet) as client:
            writing = asyncio.create_task(write_texts(client))
            before = len(fleet.events)
            told = await happens(fleet, "draining", timeout=40, after=before)
            os.kill(told["pid"], signal.SIGKILL)
            drained = await happens(fleet, "drained", name=told["name"], timeout=10, after=before)
            answers = await writing
    samples = users.samples

    failures = [sample.failure for sample in samples if sample.failure is not None]
    assert not failures, (failures[:3], fleet.story())
    assert {answer.status_code for answer in answers} == {200}, fleet.story()
    assert drained["how"] == "was killed by SIGKILL"
    assert not [event for event in fleet.events if event["event"] == "restarted" and event["name"] == told["name"]]
    exited = [event["name"] for event in fleet.events if event["event"] == "child_exited"]
    assert exited == ["autoscaler", "nats"], fleet.story()

    pods = pod_processes(fleet)
    assert pods
    assert fleet.stop() == 0
    assert not [pod for pod in pods if pod.is_running()]


async def write_texts(client: httpx.AsyncClient) -> list[httpx.Response]:
    """Have texts written that take seconds, some at a time for a while, so that a pod that drains has to do."""
    body = {"model": "tiny", "prompt": "A long text, please:", "max_tokens": 300, "temperature": 0}
    answers: list[httpx.Response] = []

    async def one_after_the_other() -> None:
        for _ in range(6):
            answers.append(await client.post("/v1/completions", json=body))

    await asyncio.gather(*(one_after_the_other() for _ in range(5)))
    return answers
