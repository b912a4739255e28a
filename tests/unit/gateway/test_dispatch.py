"""One sentence on its way to a pod, and what happens when that pod fails."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from copydesk.common.messages import EndpointState
from copydesk.common.tasks import CorrectedSentence, CorrectSentence
from copydesk.gateway.dispatch import Delivery, Dispatch
from copydesk.gateway.faults import ApiError
from copydesk.gateway.service import Gateway
from copydesk.routing import Ticket
from tests.fixtures.fake_pod import FakePod
from tests.unit.gateway.conftest import Desk, eventually, snapshot

PAYLOAD = msgspec.msgpack.encode(CorrectSentence("She go."))


class Sent:
    """A dispatched sentence, and its outcome."""

    def __init__(self, gateway: Gateway, seconds: float = 5.0) -> None:
        loop = asyncio.get_running_loop()
        self.outcomes: list[Delivery | ApiError] = []
        self._ended = asyncio.Event()
        self.dispatch: Dispatch = gateway.dispatcher.submit(PAYLOAD, loop.time() + seconds, self._on_done)
        assert self.outcomes == []

    def _on_done(self, outcome: Delivery | ApiError) -> None:
        self.outcomes.append(outcome)
        self._ended.set()

    async def error(self) -> ApiError:
        outcome = await self._outcome()
        assert isinstance(outcome, ApiError)
        return outcome

    async def text(self) -> str:
        outcome = await self._outcome()
        assert isinstance(outcome, Delivery)
        return msgspec.msgpack.decode(outcome.payload, type=CorrectedSentence).text

    async def _outcome(self) -> Delivery | ApiError:
        async with asyncio.timeout(5):
            await self._ended.wait()
        assert len(self.outcomes) == 1
        return self.outcomes[0]


async def pair(desk: Desk, bad: str, **settings: object) -> tuple[Gateway, FakePod, FakePod]:
    """A pod that misbehaves and one that does not, with the bad one certain to be tried first."""
    first, second = await desk.pod("bad", bad), await desk.pod("good")
    gateway = await desk.gateway(first, second, **settings)
    good = gateway.fleet.pods["good"]
    Ticket(good.ledger, asyncio.get_running_loop().time())
    return gateway, first, second


def idle(gateway: Gateway) -> bool:
    return all(pod.ledger.in_flight == (pod.id == "good") for pod in gateway.fleet.pods.values())


async def test_a_sentence_comes_back_corrected(desk: Desk) -> None:
    gateway = await desk.gateway(await desk.pod("only"))
    assert await Sent(gateway).text() == "She go."
    assert idle(gateway)


@pytest.mark.parametrize("behaviour", ["unavailable", "overload", "crash"])
async def test_a_pod_that_cannot_is_replaced_by_another(desk: Desk, behaviour: str) -> None:
    gateway, bad, good = await pair(desk, behaviour)
    assert await Sent(gateway).text() == "She go."
    assert len(bad.received) == len(good.received) == 1
    assert idle(gateway)
    assert gateway.metrics.retries == 1


async def test_a_lost_connection_is_retried_on_another_pod(desk: Desk) -> None:
    gateway, bad, good = await pair(desk, "hang")
    sent = Sent(gateway)
    await eventually(lambda: bad.received)
    await bad.stop()
    assert await sent.text() == "She go."
    assert len(good.received) == 1
    assert idle(gateway)
    assert gateway.fleet.pods["bad"].ledger.errors == 1


async def test_there_is_one_retry_and_no_more(desk: Desk) -> None:
    pods = [await desk.pod(name, "unavailable") for name in ("a", "b", "c")]
    gateway = await desk.gateway(*pods)
    error = await Sent(gateway).error()
    assert (error.status, error.code, error.retry_after) == (503, "pod_unavailable", 1)
    assert sum(len(pod.received) for pod in pods) == 2


async def test_when_two_pods_are_full_the_client_is_told_when_to_return(desk: Desk) -> None:
    pods = [await desk.pod(name, "overload") for name in ("a", "b", "c")]
    gateway = await desk.gateway(*pods)
    error = await Sent(gateway).error()
    assert (error.status, error.code, error.retry_after) == (429, "overloaded", 3)
    assert sum(len(pod.received) for pod in pods) == 2
    assert sum(pod.ledger.errors for pod in gateway.fleet.pods.values()) == 0


async def test_a_full_pod_without_another_refuses_at_once(desk: Desk) -> None:
    gateway = await desk.gateway(await desk.pod("only", "overload"), endpoint_wait_ms=60_000)
    assert (await Sent(gateway).error()).code == "overloaded"


async def test_without_budget_nothing_is_retried(desk: Desk) -> None:
    gateway, bad, good = await pair(desk, "unavailable", retry_ratio=0.0, retry_floor=0.0)
    assert (await Sent(gateway).error()).code == "pod_unavailable"
    assert (len(bad.received), len(good.received)) == (1, 0)


async def test_what_an_engine_took_with_it_is_retried_even_without_budget(desk: Desk) -> None:
    gateway, bad, good = await pair(desk, "engineless", retry_ratio=0.0, retry_floor=0.0)
    assert await Sent(gateway).text() == "She go."
    assert (len(bad.received), len(good.received)) == (1, 1)
    assert not gateway.fleet.pods["bad"].eligible


async def test_a_lost_connection_is_retried_even_without_budget(desk: Desk) -> None:
    gateway, bad, _ = await pair(desk, "hang", retry_ratio=0.0, retry_floor=0.0)
    sent = Sent(gateway)
    await eventually(lambda: bad.received)
    await bad.stop()
    assert await sent.text() == "She go."


async def test_a_pod_that_says_it_is_unavailable_gets_nothing_until_a_ping_says_otherwise(desk: Desk) -> None:
    gateway, bad, _ = await pair(desk, "unavailable", keepalive_ms=60_000)
    await Sent(gateway).text()
    assert [pod.id for pod in gateway.fleet.eligible] == ["good"]
    assert bad.state is EndpointState.READY


async def test_with_no_pod_at_all_the_wait_ends_with_no_endpoints(desk: Desk) -> None:
    gateway = await desk.gateway(endpoint_wait_ms=20)
    error = await Sent(gateway).error()
    assert (error.status, error.code, error.retry_after) == (503, "no_endpoints", 1)


async def test_a_pod_that_comes_while_one_waits_gets_the_sentence(desk: Desk) -> None:
    gateway = await desk.gateway(endpoint_wait_ms=5_000)
    sent = Sent(gateway)
    pod = await desk.pod("late")
    gateway.fleet.apply(snapshot(pod.endpoint()))
    assert await sent.text() == "She go."


async def test_waiting_for_a_pod_never_outlasts_the_deadline(desk: Desk) -> None:
    gateway = await desk.gateway(endpoint_wait_ms=60_000)
    assert (await Sent(gateway, seconds=0.02).error()).code == "deadline_exceeded"


async def test_a_deadline_that_has_passed_reaches_no_pod(desk: Desk) -> None:
    pod = await desk.pod("only")
    gateway = await desk.gateway(pod)
    assert (await Sent(gateway, seconds=-1.0).error()).status == 504
    assert pod.received == []


async def test_a_hanging_pod_costs_the_deadline_and_no_more(desk: Desk) -> None:
    pod = await desk.pod("only", "hang")
    gateway = await desk.gateway(pod)
    assert (await Sent(gateway, seconds=0.05).error()).code == "deadline_exceeded"
    assert idle(gateway)
    await eventually(lambda: pod.cancelled)


async def test_an_answer_that_another_pod_would_give_too_is_not_retried(desk: Desk) -> None:
    gateway, _, good = await pair(desk, "invalid")
    error = await Sent(gateway).error()
    assert (error.status, error.code) == (400, "refused_by_model")
    assert good.received == []
    assert idle(gateway)


async def test_cancelling_tells_the_pod_and_no_one_else(desk: Desk) -> None:
    pod = await desk.pod("only", "hang")
    gateway = await desk.gateway(pod)
    sent = Sent(gateway)
    await eventually(lambda: pod.received)
    sent.dispatch.cancel()
    sent.dispatch.cancel()
    assert idle(gateway)
    await eventually(lambda: pod.cancelled)
    assert sent.outcomes == []


async def test_cancelling_a_sentence_that_waits_for_a_pod_withdraws_it(desk: Desk) -> None:
    gateway = await desk.gateway(endpoint_wait_ms=60_000)
    sent = Sent(gateway)
    sent.dispatch.cancel()
    pod = await desk.pod("late")
    gateway.fleet.apply(snapshot(pod.endpoint()))
    await eventually(lambda: gateway.fleet.eligible)
    await asyncio.sleep(0.02)
    assert pod.received == []
    assert sent.outcomes == []


async def test_a_pod_that_leaves_the_membership_answers_what_it_has(desk: Desk) -> None:
    leaving, staying = await desk.pod("leaving", "slow"), await desk.pod("staying")
    gateway = await desk.gateway(leaving)
    sent = Sent(gateway)
    await eventually(lambda: leaving.received)
    gateway.fleet.apply(snapshot(staying.endpoint()))
    assert await sent.text() == "She go."
    assert staying.received == []


async def test_a_pod_that_drains_answers_what_it_has_and_gets_no_more(desk: Desk) -> None:
    draining, other = await desk.pod("draining", "slow"), await desk.pod("other")
    gateway = await desk.gateway(draining)
    sent = Sent(gateway)
    await eventually(lambda: draining.received)
    gateway.fleet.apply(snapshot(draining.endpoint(), other.endpoint()))
    drained = asyncio.ensure_future(draining.drain())
    await eventually(lambda: [pod.id for pod in gateway.fleet.eligible] == ["other"])
    assert await Sent(gateway).text() == "She go."
    assert await sent.text() == "She go."
    assert await drained
    assert len(draining.received) == 1
