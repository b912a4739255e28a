"""A request that somebody else has sent to a pod, and that ends here as if it had been sent from here."""

from __future__ import annotations

import asyncio
import random

import msgspec
import pytest

from copydesk.common.rpc import Channel, Priority
from copydesk.common.rpc.codec import encode_frame
from copydesk.common.rpc.frames import Request
from copydesk.common.tasks import CorrectedSentence
from copydesk.gateway.dispatch import Delivery, Dispatch
from copydesk.gateway.faults import ApiError
from copydesk.gateway.lane.resumption import Resumption
from copydesk.gateway.service import Gateway
from copydesk.routing import Ticket
from tests.fixtures.fake_pod import FakePod
from tests.unit.gateway.conftest import Desk, eventually
from tests.unit.gateway.virtual_fleet import PAYLOAD, Outcomes, VirtualFleet
from tests.unit.loadtest.virtual_time import run_virtually

ID = 1 << 32


class Resumed:
    """Sends a sentence to a pod past the dispatcher, counts it as the dispatcher would, and hands it over."""

    def __init__(self, gateway: Gateway, pod: str = "bad", *, seconds: float = 5.0) -> None:
        self.outcomes: list[Delivery | ApiError] = []
        self._gateway = gateway
        self._pod = gateway.fleet.pods[pod]
        self._started_at = asyncio.get_running_loop().time()
        self._deadline = self._started_at + seconds
        assert gateway.dispatcher.gate.enter()
        gateway.dispatcher.budget.request(self._started_at)
        Ticket(self._pod.ledger, self._started_at)
        if isinstance(self._pod.channel, Channel):
            self._pod.channel.write(encode_frame(Request(ID, 5000, Priority.INTERACTIVE, msgspec.Raw(PAYLOAD))))

    def hand_over(self) -> Dispatch:
        where = Resumption(self._pod, ID, self._started_at, self._deadline, "a-request")
        dispatch = self._gateway.dispatcher.resume(PAYLOAD, self.outcomes.append, where, Priority.INTERACTIVE)
        assert self.outcomes == []
        return dispatch

    async def outcome(self) -> str:
        """The corrected text, or the code of the error."""
        await eventually(lambda: self.outcomes)
        (outcome,) = self.outcomes
        if isinstance(outcome, ApiError):
            return outcome.code
        return msgspec.msgpack.decode(outcome.payload, type=CorrectedSentence).text


async def pair(desk: Desk, behaviour: str) -> tuple[Gateway, FakePod, FakePod]:
    bad, good = await desk.pod("bad", behaviour), await desk.pod("good")
    return await desk.gateway(bad, good), bad, good


def idle(gateway: Gateway) -> bool:
    pods = gateway.fleet.pods.values()
    return gateway.dispatcher.gate.underway == 0 and not any(pod.ledger.in_flight or pod.underway for pod in pods)


async def test_its_answer_comes_and_it_has_been_counted_once(desk: Desk) -> None:
    gateway, bad, good = await pair(desk, "slow")
    resumed = Resumed(gateway)
    resumed.hand_over()
    ledger = gateway.fleet.pods["bad"].ledger
    assert (ledger.in_flight, ledger.requests, gateway.dispatcher.gate.underway) == (1, 1, 1)
    assert next(iter(gateway.fleet.pods["bad"].underway)).started_at == resumed._started_at
    assert await resumed.outcome() == "She go."
    assert (len(bad.received), len(good.received), ledger.requests, ledger.samples) == (1, 0, 1, 1)
    assert ledger.mean_ms >= 90.0
    assert idle(gateway)
    (delivery,) = resumed.outcomes
    assert isinstance(delivery, Delivery)
    assert delivery.digest == "sha256:fake"


@pytest.mark.parametrize("behaviour", ["unavailable", "overload", "crash"])
async def test_what_its_pod_cannot_do_another_one_does(desk: Desk, behaviour: str) -> None:
    gateway, bad, good = await pair(desk, behaviour)
    resumed = Resumed(gateway)
    resumed.hand_over()
    assert await resumed.outcome() == "She go."
    assert (len(bad.received), len(good.received), gateway.metrics.retries) == (1, 1, 1)
    assert idle(gateway)


async def test_a_refusal_that_any_pod_would_give_is_final(desk: Desk) -> None:
    gateway, _, good = await pair(desk, "invalid")
    resumed = Resumed(gateway)
    resumed.hand_over()
    assert await resumed.outcome() == "refused_by_model"
    assert good.received == []
    assert idle(gateway)


async def test_a_connection_that_is_lost_with_it_sends_it_to_another_pod(desk: Desk) -> None:
    gateway, bad, good = await pair(desk, "hang")
    resumed = Resumed(gateway)
    await eventually(lambda: bad.received)
    resumed.hand_over()
    await bad.stop()
    assert await resumed.outcome() == "She go."
    assert (len(good.received), gateway.fleet.pods["bad"].ledger.errors) == (1, 1)
    assert idle(gateway)


async def test_a_connection_that_was_lost_before_does_so_too(desk: Desk) -> None:
    gateway, bad, good = await pair(desk, "hang")
    resumed = Resumed(gateway)
    pod = gateway.fleet.pods["bad"]
    await bad.stop()
    await eventually(lambda: not pod.connected)
    resumed.hand_over()
    assert await resumed.outcome() == "She go."
    assert len(good.received) == 1
    assert idle(gateway)


@pytest.mark.parametrize("seconds", [-1.0, 0.05])
async def test_its_deadline_ends_it_and_its_pod_is_told(desk: Desk, seconds: float) -> None:
    gateway, bad, good = await pair(desk, "hang")
    resumed = Resumed(gateway, seconds=seconds)
    resumed.hand_over()
    assert await resumed.outcome() == "deadline_exceeded"
    await eventually(lambda: bad.cancelled)
    assert good.received == []
    assert idle(gateway)


async def test_given_up_it_is_told_to_its_pod_and_to_no_one_else(desk: Desk) -> None:
    gateway, bad, _ = await pair(desk, "hang")
    resumed = Resumed(gateway)
    dispatch = resumed.hand_over()
    await eventually(lambda: bad.received)
    dispatch.cancel()
    dispatch.cancel()
    assert idle(gateway)
    await eventually(lambda: bad.cancelled)
    assert resumed.outcomes == []


async def test_a_pod_that_leaves_answers_it_first(desk: Desk) -> None:
    gateway, bad, _ = await pair(desk, "slow")
    resumed = Resumed(gateway)
    resumed.hand_over()
    drained = asyncio.ensure_future(bad.drain())
    assert await resumed.outcome() == "She go."
    assert await drained
    assert idle(gateway)


async def silence(monkeypatch: pytest.MonkeyPatch) -> None:
    pods = VirtualFleet(monkeypatch)
    pods.pod("bad", seconds=0.1)
    pods.pod("good", seconds=0.1)
    gateway = await pods.gateway()
    outcomes = Outcomes(gateway)
    pods.pods[1000].frozen = True
    resumed = Resumed(gateway)
    resumed.hand_over()
    for _ in range(100):
        outcomes.submit()
        await asyncio.sleep(0.02)
    assert [type(outcome) for outcome in resumed.outcomes] == [Delivery]
    assert gateway.dispatcher.routing.hedges > 0
    await asyncio.sleep(10.0)
    assert idle(gateway)
    await gateway.close()


def test_when_its_pod_falls_silent_another_one_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.random", random.Random(20).random)
    run_virtually(silence(monkeypatch))


async def hedge(monkeypatch: pytest.MonkeyPatch) -> None:
    pods = VirtualFleet(monkeypatch)
    bad, good = pods.pod("bad", seconds=0.1), pods.pod("good", seconds=0.1)
    gateway = await pods.gateway(hedge=True)
    outcomes = Outcomes(gateway)
    for _ in range(200):
        outcomes.submit()
        await asyncio.sleep(0.02)
    await asyncio.sleep(1.0)
    slow, before = gateway.fleet.health.slow, len(good.taken)
    assert slow is not None
    bad.seconds = None
    resumed = Resumed(gateway)
    await asyncio.sleep(slow / 2)
    resumed.hand_over()
    await asyncio.sleep(slow * 0.45)
    assert len(good.taken) == before
    await asyncio.sleep(slow * 0.1)
    assert len(good.taken) == before + 1
    await asyncio.sleep(1.0)
    assert [type(outcome) for outcome in resumed.outcomes] == [Delivery]
    assert idle(gateway)
    assert bad.taken[-1].open is False
    await gateway.close()


def test_it_is_hedged_when_it_is_slow_and_not_when_it_was_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    run_virtually(hedge(monkeypatch))
