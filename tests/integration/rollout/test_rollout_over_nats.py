"""A rollout over a real NATS: a controller, a gateway, pods of two versions, all in this process."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest

from copydesk.cli.rollout.conductor import Terms
from copydesk.cli.rollout.controller import Controller, Ending, Wanted
from copydesk.cli.rollout.roster import VersionError
from copydesk.cli.rollout.status import RolloutStatus
from copydesk.common.bus import Bus
from copydesk.common.messages import EndpointsSnapshot, EndpointState, LoadReport, endpoints_subject, load_subject
from copydesk.common.tasks import CorrectedSentence, Outcome
from copydesk.gateway.correction import Correction
from copydesk.gateway.faults import ApiError
from copydesk.gateway.service import Gateway
from copydesk.gateway.settings import GatewaySettings
from copydesk.routing import Policy
from tests.fixtures.fake_pod import MODEL, FakePod
from tests.fixtures.nats import NatsServer

OLD, NEW = "a" * 64, "b" * 64
PERIOD = 0.1
POLICY = Policy(sentences=60, shares=(0.3, 1.0), seconds=0.2, requests=20)
TERMS = Terms(POLICY, slo_ms=1000.0, shadow_share=0.5, expires_after_s=3.0)
WANTED = Wanted(TERMS, candidate=NEW[:12])


def shouted(text: str) -> CorrectedSentence:
    return CorrectedSentence(text.upper(), Outcome.CORRECTED, 1, 1)


async def until(condition: Callable[[], object], within: float = 30.0) -> None:
    async with asyncio.timeout(within):
        while not condition():  # noqa: ASYNC110 - what is waited for is plain data of another object
            await asyncio.sleep(0.02)


class Fleet:
    """Pods and a gateway on a NATS, somebody who writes all the time, and controllers."""

    def __init__(self, nats: NatsServer, stack: AsyncExitStack) -> None:
        self.nats = nats
        self.pods: list[FakePod] = []
        self.errors: list[ApiError] = []
        self.answers = 0
        self.by: list[str] = []
        self.statuses: list[RolloutStatus] = []
        self._stack = stack
        self._numbers = itertools.count()
        self.gateway: Gateway
        self.bus: Bus

    async def start(self, *, new: int = 1) -> None:
        self.bus = await self.connect("pods")
        await self.pod("old-1", OLD)
        for number in range(new):
            await self.pod(f"new-{number}", NEW)
        self.gateway = Gateway(
            GatewaySettings(nats_url=self.nats.url, endpoint_wait_ms=500, keepalive_ms=50, name="gateway-1")
        )
        self._stack.push_async_callback(self.gateway.close)
        await self.gateway.start()
        self.task(self._announce())
        await until(lambda: len(self.gateway.fleet.eligible) == len(self.pods))
        for _ in range(4):
            self.task(self._write())

    async def connect(self, name: str) -> Bus:
        bus = await Bus.connect(self.nats.url, name=name)
        self._stack.push_async_callback(bus.close)
        assert await bus.wait_connected(10)
        return bus

    async def pod(self, name: str, digest: str) -> FakePod:
        pod = FakePod(name)
        pod.digest = digest
        await pod.start()
        self._stack.push_async_callback(pod.stop)
        self.pods.append(pod)
        return pod

    def task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._stack.push_async_callback(ended, task)
        return task

    async def controller(self, wanted: Wanted = WANTED, name: str = "r1") -> Controller:
        return Controller(await self.connect(name), wanted, self.statuses.append, name=name, period=PERIOD)

    @property
    def last(self) -> RolloutStatus:
        return self.statuses[-1]

    async def _announce(self) -> None:
        epoch = time.time_ns() // 1_000_000
        for sequence in itertools.count(1):
            endpoints = tuple(pod.endpoint() for pod in self.pods)
            self.bus.publish(
                endpoints_subject(MODEL),
                EndpointsSnapshot(
                    model=MODEL, epoch=epoch, generation=len(endpoints), sent_at=0, endpoints=endpoints
                ),
            )
            for pod in self.pods:
                self.bus.publish(load_subject(MODEL, pod.name), load_of(pod, sequence))
            await asyncio.sleep(0.05)

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            number = next(self._numbers)
            found: asyncio.Future[Correction | ApiError] = loop.create_future()
            corrector = self.gateway.rollout.corrector({}, f"req-{number}")
            corrector.submit([f"They go {number}."], loop.time() + 10, found.set_result)
            outcome = await found
            if isinstance(outcome, ApiError):
                self.errors.append(outcome)
            else:
                self.answers += 1
                self.by.append(outcome.digest)
            await asyncio.sleep(0.005)


def load_of(pod: FakePod, sequence: int) -> LoadReport:
    return LoadReport(
        model=MODEL,
        pod=pod.name,
        sequence=sequence,
        sent_at=0.0,
        started_at=1.0,
        host="127.0.0.1",
        port=pod.port,
        state=EndpointState.READY,
        running=0,
        queued=0,
        capacity=16,
        step_ms=1.0,
        digest=pod.digest,
    )


async def ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@pytest.fixture
async def fleet(nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Fleet]:
    monkeypatch.setattr("copydesk.gateway.service.REPORT_SECONDS", PERIOD)
    async with AsyncExitStack() as stack:
        yield Fleet(nats_server, stack)


async def test_a_version_that_answers_alike_takes_over_step_by_step(fleet: Fleet) -> None:
    await fleet.start()
    async with asyncio.timeout(60):
        assert await (await fleet.controller()).run() is Ending.FINISHED
    stages = [(status.stage, status.share) for status in fleet.statuses if status.event == "stage"]
    assert stages == [("shadow", 0.0), ("share", 0.3), ("share", 1.0), ("finished", 1.0)]
    assert fleet.last.event == "end"
    assert fleet.last.agreement == fleet.last.likeness == 1.0
    assert fleet.last.compared.compared >= POLICY.sentences
    await until(lambda: fleet.gateway.fleet.digest == NEW)
    seen = len(fleet.by)
    await until(lambda: len(fleet.by) > seen + 20)
    assert set(fleet.by[seen + 5 :]) == {NEW}
    assert fleet.errors == []


async def test_a_version_that_answers_otherwise_is_rolled_back_and_answered_nobody(fleet: Fleet) -> None:
    await fleet.start()
    fleet.pods[1].answer = shouted
    controller = await fleet.controller()
    run = asyncio.create_task(controller.run())
    await until(lambda: fleet.gateway.rollout.split is not None)
    seen = len(fleet.by) + 4  # that many may have been on their way
    async with asyncio.timeout(60):
        assert await run is Ending.ROLLED_BACK
    assert "came back the same" in fleet.last.why
    assert fleet.last.compared.compared < POLICY.sentences
    await asyncio.sleep(0.1)
    assert set(fleet.by[seen:]) == {OLD}
    assert fleet.errors == []


@pytest.mark.parametrize(("behaviour", "why"), [("fail", "failed"), ("slow", "were too slow")])
async def test_a_version_that_breaks_in_a_share_is_rolled_back_without_an_error(
    fleet: Fleet, behaviour: str, why: str
) -> None:
    await fleet.start()
    policy = replace(POLICY, shares=(0.3, 0.31, 1.0), seconds=600.0)
    wanted = replace(WANTED, terms=replace(TERMS, policy=policy, slo_ms=100.0))
    run = asyncio.create_task((await fleet.controller(wanted)).run())
    await until(lambda: fleet.statuses and fleet.last.stage == "share")
    await until(lambda: fleet.last.candidate.requests > 20)
    fleet.pods[1].seconds = 0.4
    fleet.pods[1].behaviour = behaviour
    async with asyncio.timeout(60):
        assert await run is Ending.ROLLED_BACK
    assert why in fleet.last.why or "brought no answer" in fleet.last.why
    assert fleet.errors == []


async def test_without_its_controller_a_gateway_goes_back_and_another_controller_goes_on(fleet: Fleet) -> None:
    await fleet.start()
    wanted = replace(WANTED, terms=replace(TERMS, policy=replace(POLICY, seconds=600.0), expires_after_s=1.0))
    run = asyncio.create_task((await fleet.controller(wanted)).run())
    await until(lambda: fleet.gateway.rollout.split is not None and fleet.gateway.rollout.split.share == 0.3)
    run.cancel()  # as if it were killed: nothing is said any more
    await until(lambda: fleet.gateway.rollout.split is None)
    seen = len(fleet.by) + 4
    await until(lambda: len(fleet.by) > seen + 30)
    assert set(fleet.by[seen:]) == {OLD}
    assert "rollout_unattended_total 1" in fleet.gateway.render_metrics()
    fleet.statuses.clear()
    with pytest.raises(VersionError, match="is run by no ready pod"):
        await (await fleet.controller(replace(wanted, candidate="c0ffee"), "r2")).run()
    async with asyncio.timeout(60):
        resumed = replace(wanted, resume=True, terms=replace(TERMS, policy=POLICY))
        assert await (await fleet.controller(resumed, "r3")).run() is Ending.FINISHED
    assert fleet.statuses[0].rollout == "r1"
    assert (fleet.statuses[0].stage, fleet.statuses[0].share) == ("share", 0.3)
    assert fleet.errors == []


async def test_one_controller_takes_over_from_another_and_no_third_begins(fleet: Fleet) -> None:
    await fleet.start()
    wanted = replace(WANTED, terms=replace(TERMS, policy=replace(POLICY, seconds=600.0)))
    first = asyncio.create_task((await fleet.controller(wanted)).run())
    await until(lambda: fleet.statuses and fleet.last.stage == "share")
    with pytest.raises(VersionError, match="underway"):
        await (await fleet.controller(wanted, "r2")).run()
    second = await fleet.controller(replace(wanted, resume=True, keep=True), "r3")
    taking_over = asyncio.create_task(second.run())
    async with asyncio.timeout(30):
        assert await first is Ending.TAKEN_OVER
    assert fleet.gateway.rollout.split is not None
    second.stop("enough")
    async with asyncio.timeout(30):
        assert await taking_over is Ending.LEFT
    assert fleet.gateway.rollout.split is not None


async def test_a_stop_rolls_back(fleet: Fleet) -> None:
    await fleet.start()
    wanted = replace(WANTED, terms=replace(TERMS, policy=replace(POLICY, seconds=600.0)))
    controller = await fleet.controller(wanted)
    run = asyncio.create_task(controller.run())
    await until(lambda: fleet.statuses and fleet.last.stage == "share")
    controller.stop("SIGINT came")
    async with asyncio.timeout(30):
        assert await run is Ending.ROLLED_BACK
    assert fleet.last.why == "SIGINT came"
    await until(lambda: fleet.gateway.rollout.split is None)
    assert fleet.errors == []


async def test_nats_restarts_and_a_candidate_dies_in_a_share_without_a_failed_request(fleet: Fleet) -> None:
    await fleet.start(new=2)
    wanted = replace(WANTED, terms=replace(TERMS, policy=replace(POLICY, shares=(0.5,), seconds=600.0)))
    controller = await fleet.controller(wanted)
    run = asyncio.create_task(controller.run())
    await until(lambda: fleet.statuses and fleet.last.stage == "share" and fleet.last.candidate.requests > 20)
    await fleet.pods[1].stop()
    seen = fleet.last.candidate.requests
    await until(lambda: fleet.last.candidate.requests > seen + 20)
    fleet.nats.stop()
    await until(lambda: fleet.gateway.rollout.split is None)
    fleet.nats.start()
    await until(lambda: fleet.gateway.rollout.split is not None, 60)
    seen = fleet.last.candidate.requests
    await until(lambda: fleet.last.candidate.requests > seen + 20, 60)
    assert fleet.last.stage == "share"
    controller.stop("enough")
    async with asyncio.timeout(30):
        assert await run is Ending.ROLLED_BACK
    assert fleet.errors == []
    assert fleet.answers > 100


async def test_two_versions_are_needed(fleet: Fleet) -> None:
    await fleet.start(new=0)
    with pytest.raises(VersionError, match="has to be one version"):
        await (await fleet.controller(replace(WANTED, candidate=OLD))).run()
    await fleet.pod("new-1", NEW)
    await asyncio.sleep(0.2)
    with pytest.raises(VersionError, match="no rollout of gec-en is underway"):
        await (await fleet.controller(replace(WANTED, resume=True))).run()
