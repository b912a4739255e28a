"""The gateway while pods hang, crawl, fail, come and go, on a clock that jumps."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest

from copydesk.common.messages import EndpointState, LoadReport
from copydesk.common.rpc import Priority, Status
from copydesk.common.tasks import ChatMessage, ChatPrompt, GenerateText
from copydesk.gateway.service import Gateway
from copydesk.routing import Ending, Ticket
from tests.fixtures.fake_pod import MODEL
from tests.unit.gateway.conftest import snapshot
from tests.unit.gateway.virtual_fleet import Outcomes, VirtualFleet
from tests.unit.loadtest.virtual_time import run_virtually

Test = Callable[[VirtualFleet], Coroutine[Any, Any, None]]

TEXT = msgspec.msgpack.encode(GenerateText(ChatPrompt([ChatMessage("user", "write")])))


@pytest.fixture
def virtually(monkeypatch: pytest.MonkeyPatch) -> Callable[[Test], None]:
    """Runs a test on the virtual clock, with a fleet to be filled."""

    monkeypatch.setattr("random.random", random.Random(20).random)

    async def run(test: Test) -> None:
        await test(VirtualFleet(monkeypatch))

    return lambda test: run_virtually(run(test))


async def load(outcomes: Outcomes, rate: float, seconds: float, *, deadline: float = 1.0, **how: Any) -> None:
    """Send so many requests a second for so long, evenly."""
    for _ in range(int(rate * seconds)):
        outcomes.submit(deadline, **how)
        await asyncio.sleep(1.0 / rate)


def sent_to(fleet: VirtualFleet, name: str) -> int:
    return sum(len(pod.taken) for pod in fleet.pods.values() if pod.name == name)


async def of_three(fleet: VirtualFleet, **settings: object) -> tuple[Gateway, Outcomes]:
    for name in ("a", "b", "c"):
        fleet.pod(name, seconds=0.1)
    gateway = await fleet.gateway(**settings)
    return gateway, Outcomes(gateway)


def test_a_pod_that_freezes_is_ejected_within_two_seconds_and_loses_no_request(
    virtually: Callable[[Test], None],
) -> None:
    async def test(fleet: VirtualFleet) -> None:
        gateway, outcomes = await of_three(fleet)
        await load(outcomes, 100, 2.0)
        fleet.pods[1000].frozen = True
        frozen_at = asyncio.get_running_loop().time()
        while not gateway.fleet.health.ejected("a"):
            await load(outcomes, 100, 0.05)
        assert asyncio.get_running_loop().time() - frozen_at < 2.0
        before = sent_to(fleet, "a")
        await load(outcomes, 100, 1.5)
        assert sent_to(fleet, "a") == before
        await load(outcomes, 100, 20.0)
        assert sent_to(fleet, "a") - before < 10
        await asyncio.sleep(2.0)
        assert outcomes.errors == []
        assert gateway.dispatcher.routing.hedges > 0

    virtually(test)


def test_a_pod_that_thaws_is_back_with_its_first_answer(virtually: Callable[[Test], None]) -> None:
    async def test(fleet: VirtualFleet) -> None:
        gateway, outcomes = await of_three(fleet)
        await load(outcomes, 100, 2.0)
        pod = fleet.pods[1000]
        pod.seconds = None
        while not gateway.fleet.health.ejected("a"):
            await load(outcomes, 100, 0.05)
        assert pod.channel is not None
        pod.seconds = 0.1
        for call in tuple(pod.channel.calls.values()):
            call.end()
        await asyncio.sleep(0.15)
        assert not gateway.fleet.health.ejected("a")

    virtually(test)


def test_a_pod_that_fails_fast_is_ejected_after_five_failures_that_no_client_sees(
    virtually: Callable[[Test], None],
) -> None:
    async def test(fleet: VirtualFleet) -> None:
        _, outcomes = await of_three(fleet)
        fleet.pods[1001].fails = Status.INTERNAL
        await load(outcomes, 120, 1.0)
        await asyncio.sleep(1.0)
        assert sent_to(fleet, "b") <= 5
        assert outcomes.errors == []

    virtually(test)


@pytest.mark.parametrize(
    ("seconds", "rate", "reason"), [((0.03, 0.3), 400, "latency"), ((0.1, 1.0), 100, "silence")]
)
def test_a_pod_ten_times_slower_is_ejected_and_gets_less_than_a_fifth_of_its_share(
    virtually: Callable[[Test], None], seconds: tuple[float, float], rate: float, reason: str
) -> None:
    async def test(fleet: VirtualFleet) -> None:
        gateway, outcomes = await of_three(fleet)
        usual, slow = seconds
        for pod in fleet.pods.values():
            pod.seconds = usual
        fleet.pods[1002].seconds = slow
        await load(outcomes, rate, 10.0, deadline=5.0)
        await asyncio.sleep(5.0)
        assert sent_to(fleet, "c") < 10 * rate / 3 / 5
        assert outcomes.errors == []
        assert set(gateway.fleet.health.ejections) == {reason}

    virtually(test)


def test_back_pressure_ejects_nobody(virtually: Callable[[Test], None]) -> None:
    async def test(fleet: VirtualFleet) -> None:
        gateway, outcomes = await of_three(fleet)
        fleet.pods[1000].fails = Status.OVERLOADED
        await load(outcomes, 100, 2.0)
        await asyncio.sleep(1.0)
        assert gateway.fleet.health.ejections.total() == 0
        assert gateway.fleet.pods["a"].ledger.errors == 0
        assert outcomes.errors == []

    virtually(test)


def test_when_more_than_half_fail_all_are_used(virtually: Callable[[Test], None]) -> None:
    async def test(fleet: VirtualFleet) -> None:
        gateway, outcomes = await of_three(fleet, retry_ratio=1.0, retry_floor=1000.0)
        for port in (1000, 1001):
            fleet.pods[port].fails = Status.INTERNAL
        await load(outcomes, 200, 1.0)
        assert gateway.fleet_view().totals.panic
        assert {pod.id for pod in gateway.fleet.near} == {"a", "b", "c"}
        for port in (1000, 1001):
            fleet.pods[port].fails = None
        await load(outcomes, 200, 5.0)
        assert not gateway.fleet.panic
        view = gateway.fleet_view()
        assert view.totals.ejections >= 2

    virtually(test)


def test_a_process_that_stood_still_blames_no_pod(virtually: Callable[[Test], None]) -> None:
    async def test(fleet: VirtualFleet) -> None:
        gateway, outcomes = await of_three(fleet)
        await load(outcomes, 100, 1.0)
        asyncio.get_running_loop().advance(10.0)  # type: ignore[attr-defined]
        await asyncio.sleep(0.5)
        assert gateway.fleet.health.ejections.total() == 0

    virtually(test)


def test_a_long_text_does_not_make_its_pod_look_slow_or_hung(virtually: Callable[[Test], None]) -> None:
    async def test(fleet: VirtualFleet) -> None:
        gateway, outcomes = await of_three(fleet)
        for pod in fleet.pods.values():
            pod.seconds = None
        outcomes.submit(30.0, payload=TEXT)
        for pod in fleet.pods.values():
            pod.seconds = 0.1
        await load(outcomes, 3, 20.0)
        (call,) = [call for pod in fleet.pods.values() for call in pod.taken if call.open and call.deadline > 25.0]
        call.end()
        await load(outcomes, 3, 1.0)
        await asyncio.sleep(1.0)
        assert gateway.fleet.health.ejections.total() == 0
        assert (outcomes.answered, outcomes.errors) == (64, [])
        assert gateway.dispatcher.routing.hedges == 0

    virtually(test)


def test_with_hedging_a_late_sentence_is_asked_for_twice_and_the_loser_cancelled(
    virtually: Callable[[Test], None],
) -> None:
    async def test(fleet: VirtualFleet) -> None:
        gateway, outcomes = await of_three(fleet, hedge=True)
        await load(outcomes, 100, 2.0)
        for pod in fleet.pods.values():
            pod.seconds = None
        outcomes.submit(5.0)
        for pod in fleet.pods.values():
            pod.seconds = 0.1
        await asyncio.sleep(0.3)
        assert (outcomes.answered, outcomes.errors) == (201, [])
        assert gateway.dispatcher.routing.hedges == 1
        assert sum(pod.ledger.in_flight for pod in gateway.fleet.pods.values()) == 0
        assert all(not pod.channel.calls for pod in fleet.pods.values() if pod.channel is not None)

    virtually(test)


def test_hedges_stay_within_the_budget_of_retries(virtually: Callable[[Test], None]) -> None:
    async def test(fleet: VirtualFleet) -> None:
        gateway, outcomes = await of_three(fleet, hedge=True, retry_floor=0.0, retry_ratio=0.1, overcommit=50.0)
        await load(outcomes, 50, 4.0)
        for pod in fleet.pods.values():
            pod.seconds = 0.5
        await load(outcomes, 20, 5.0, deadline=20.0)
        await asyncio.sleep(20.0)
        assert 0 < gateway.dispatcher.routing.hedges <= 30

    virtually(test)


def test_if_one_of_two_tries_fails_the_other_still_counts(virtually: Callable[[Test], None]) -> None:
    async def test(fleet: VirtualFleet) -> None:
        _, outcomes = await of_three(fleet)
        for pod in fleet.pods.values():
            pod.seconds = None
        outcomes.submit(5.0)._try_beside("test")
        first, second = (call for pod in fleet.pods.values() for call in pod.taken)
        first.end(Status.INTERNAL)
        assert outcomes.errors == []
        second.end()
        assert outcomes.answered == 1

    virtually(test)


def test_parts_are_passed_on_and_after_the_first_there_is_no_other_pod(virtually: Callable[[Test], None]) -> None:
    async def test(fleet: VirtualFleet) -> None:
        gateway, outcomes = await of_three(fleet)
        for pod in fleet.pods.values():
            pod.seconds = None
        dispatch = outcomes.submit(5.0, stream=True)
        (call,) = (call for pod in fleet.pods.values() for call in pod.taken)
        call.chunk()
        call.chunk()
        dispatch._try_beside("test")
        call.end(Status.UNAVAILABLE)
        assert (outcomes.chunks, outcomes.codes) == (2, {"pod_unavailable"})
        assert sum(len(pod.taken) for pod in fleet.pods.values()) == 1
        assert gateway.metrics.retries == 0

    virtually(test)


def test_the_first_part_decides_between_two_tries(virtually: Callable[[Test], None]) -> None:
    async def test(fleet: VirtualFleet) -> None:
        _, outcomes = await of_three(fleet)
        for pod in fleet.pods.values():
            pod.seconds = None
        outcomes.submit(5.0, stream=True)._try_beside("test")
        first, second = (call for pod in fleet.pods.values() for call in pod.taken)
        second.chunk()
        assert not first.open
        first.chunk()
        second.end()
        assert (outcomes.chunks, outcomes.answered) == (1, 1)

    virtually(test)


def test_priority_travels_with_the_request(virtually: Callable[[Test], None]) -> None:
    async def test(fleet: VirtualFleet) -> None:
        _, outcomes = await of_three(fleet)
        outcomes.submit(priority=Priority.BATCH)
        assert [call.priority for pod in fleet.pods.values() for call in pod.taken] == [Priority.BATCH]

    virtually(test)


@pytest.mark.parametrize("deadline", [0.5, 1.0, 3.0])
def test_under_ten_times_the_load_the_pods_do_nine_tenths_of_what_they_can_in_time(
    virtually: Callable[[Test], None], deadline: float
) -> None:
    async def test(fleet: VirtualFleet) -> None:
        for name in ("a", "b", "c", "d"):
            fleet.pod(name, capacity=8, seconds=0.1)
        gateway = await fleet.gateway()
        outcomes = Outcomes(gateway)
        await load(outcomes, 100, 1.0, deadline=deadline)
        usual, capacity = outcomes.answered, 320
        await load(outcomes, 10 * capacity, 5.0, deadline=deadline)
        assert outcomes.answered - usual >= 0.9 * capacity * 5.0
        assert outcomes.codes <= {"overloaded", "deadline_exceeded"}
        late = sum(error.code == "deadline_exceeded" for error in outcomes.errors)
        assert late < 0.01 * len(outcomes.errors)
        assert sum(wait < 0.02 for wait in outcomes.waits) > 0.9 * len(outcomes.waits)
        assert all(error.retry_after for error in outcomes.errors if error.code == "overloaded")
        await asyncio.sleep(deadline)
        refused = len(outcomes.errors)
        await load(outcomes, 100, 1.0, deadline=deadline)
        assert len(outcomes.errors) == refused
        pods = fleet.pods.values()
        assert sum(pod.served for pod in pods) >= 0.99 * sum(len(pod.taken) for pod in pods) - 40

    virtually(test)


def test_batch_work_is_the_first_to_be_refused(virtually: Callable[[Test], None]) -> None:
    async def test(fleet: VirtualFleet) -> None:
        fleet.pod("a", capacity=8, seconds=0.1)
        gateway = await fleet.gateway(queue=20)
        interactive, batch = Outcomes(gateway), Outcomes(gateway)
        for _ in range(400):
            batch.submit(5.0, priority=Priority.BATCH)
            batch.submit(5.0, priority=Priority.BATCH)
            interactive.submit(5.0)
            await asyncio.sleep(1 / 70)
        await asyncio.sleep(5.0)
        assert interactive.errors == []
        assert batch.codes == {"overloaded"}

    virtually(test)


def test_a_request_that_waits_at_the_gate_can_be_given_up(virtually: Callable[[Test], None]) -> None:
    async def test(fleet: VirtualFleet) -> None:
        pod = fleet.pod("a", capacity=1)
        gateway = await fleet.gateway(overcommit=1.0)
        outcomes = Outcomes(gateway)
        outcomes.submit(5.0)
        waiting = outcomes.submit(5.0)
        assert (gateway.dispatcher.gate.underway, len(gateway.dispatcher.gate.queue)) == (1, 1)
        waiting.cancel()
        assert len(gateway.dispatcher.gate.queue) == 0
        pod.taken[0].end()
        assert (outcomes.answered, len(pod.taken)) == (1, 1)

    virtually(test)


def test_a_deadline_passes_at_the_gate_too(virtually: Callable[[Test], None]) -> None:
    async def test(fleet: VirtualFleet) -> None:
        fleet.pod("a", capacity=1)
        outcomes = Outcomes(await fleet.gateway(overcommit=1.0))
        outcomes.submit(5.0)
        outcomes.submit(0.25)
        await asyncio.sleep(0.3)
        assert outcomes.codes == {"deadline_exceeded"}
        assert outcomes.waits == pytest.approx([0.25])

    virtually(test)


def test_when_the_last_pod_goes_those_at_the_gate_are_told_so(virtually: Callable[[Test], None]) -> None:
    async def test(fleet: VirtualFleet) -> None:
        pod = fleet.pod("a", capacity=1)
        gateway = await fleet.gateway(overcommit=1.0, endpoint_wait_ms=200)
        outcomes = Outcomes(gateway)
        for _ in range(3):
            outcomes.submit(60.0)
        pod.down = True
        assert pod.channel is not None
        pod.channel.lose()
        await asyncio.sleep(0.5)
        assert (len(outcomes.errors), outcomes.codes) == (3, {"no_endpoints", "pod_unavailable"})

    virtually(test)


def test_a_new_pod_gets_its_share_little_by_little(virtually: Callable[[Test], None]) -> None:
    async def test(fleet: VirtualFleet) -> None:
        gateway, outcomes = await of_three(fleet, slow_start_ms=10_000)
        await load(outcomes, 200, 1.0)
        fleet.pod("new", seconds=0.1)
        gateway.fleet.apply(snapshot(*(pod.endpoint() for pod in fleet.pods.values())))
        await asyncio.sleep(0.01)
        shares = []
        for _ in range(3):
            before = sent_to(fleet, "new")
            await load(outcomes, 200, 5.0)
            shares.append((sent_to(fleet, "new") - before) / 1000)
        assert shares[0] < 0.15
        assert shares[2] == pytest.approx(0.25, abs=0.04)
        assert gateway.fleet.pods["new"].ledger.weight == 1.0

    virtually(test)


def test_a_pod_that_was_started_again_is_new_again(virtually: Callable[[Test], None]) -> None:
    async def test(fleet: VirtualFleet) -> None:
        pod = fleet.pod("a", seconds=0.1)
        gateway = await fleet.gateway()
        gateway.fleet.apply(snapshot(pod.endpoint(started_at=100.0)))
        assert gateway.fleet.pods["a"].ledger.weight == 1.0
        gateway.fleet.apply(snapshot(pod.endpoint(started_at=90.0)))
        assert gateway.fleet.pods["a"].ledger.weight == 0.1

    virtually(test)


def report(name: str, sequence: int, running: int, capacity: int = 8) -> LoadReport:
    return LoadReport(
        model=MODEL,
        pod=name,
        sequence=sequence,
        sent_at=0.0,
        started_at=1.0,
        host="virtual",
        port=0,
        state=EndpointState.READY,
        running=running,
        queued=0,
        capacity=capacity,
        step_ms=1.0,
        digest="",
    )


def test_a_load_report_tells_of_a_pod_that_has_answered_nothing_lately(virtually: Callable[[Test], None]) -> None:
    async def test(fleet: VirtualFleet) -> None:
        gateway, outcomes = await of_three(fleet, keepalive_ms=60_000)
        gateway.fleet.hear_report(report("a", 2, running=7))
        gateway.fleet.hear_report(report("nobody", 1, running=7))
        await load(outcomes, 10, 0.2)
        assert sent_to(fleet, "a") == 0
        await asyncio.sleep(1.0)
        gateway.fleet.hear_report(report("a", 1, running=3))
        heard = gateway.fleet.pods["a"].ledger.load
        assert heard is not None
        assert heard.running == 7
        gateway.fleet.hear_report(report("a", 3, running=0, capacity=4))
        assert gateway.fleet.pods["a"].ledger.capacity == 4

    virtually(test)


def test_what_an_answer_has_just_told_outweighs_a_report(virtually: Callable[[Test], None]) -> None:
    async def test(fleet: VirtualFleet) -> None:
        fleet.pod("a", seconds=0.1)
        gateway = await fleet.gateway(keepalive_ms=60_000)
        Outcomes(gateway).submit()
        await asyncio.sleep(0.15)
        gateway.fleet.hear_report(report("a", 1, running=7))
        heard = gateway.fleet.pods["a"].ledger.load
        assert heard is not None
        assert heard.running == 0

    virtually(test)


def test_the_own_zone_goes_first_until_it_is_busier(virtually: Callable[[Test], None]) -> None:
    async def test(fleet: VirtualFleet) -> None:
        fleet.pod("here", seconds=0.1, zone="a")
        fleet.pod("there", seconds=0.1, zone="b")
        outcomes = Outcomes(await fleet.gateway(zone="a"))
        await load(outcomes, 5, 5.0)
        assert sent_to(fleet, "there") == 0
        await load(outcomes, 100, 5.0)
        assert 0 < sent_to(fleet, "there") < sent_to(fleet, "here")
        assert outcomes.errors == []

    virtually(test)


def test_what_fails_in_one_zone_is_tried_in_another(virtually: Callable[[Test], None]) -> None:
    async def test(fleet: VirtualFleet) -> None:
        for name, zone in (("a1", "a"), ("a2", "a"), ("b", "b")):
            fleet.pod(name, seconds=0.1, zone=zone)
        outcomes = Outcomes(await fleet.gateway(zone="a"))
        for _ in range(4):
            outcomes.submit()
        for port in (1000, 1001):
            pod = fleet.pods[port]
            pod.down = True
            assert pod.channel is not None
            pod.channel.lose()
        await asyncio.sleep(1.0)
        assert (outcomes.answered, outcomes.errors) == (4, [])

    virtually(test)


def test_only_the_aperture_is_connected_and_it_widens_when_its_pods_fail(
    virtually: Callable[[Test], None],
) -> None:
    async def test(fleet: VirtualFleet) -> None:
        for number in range(20):
            fleet.pod(f"p{number}", seconds=0.1)
        gateway = await fleet.gateway(aperture=4, identity="gateway-3")
        outcomes = Outcomes(gateway)
        assert len(gateway.fleet.eligible) == 4
        assert sum(pod.channel is not None for pod in fleet.pods.values()) == 4
        states = [pod.state for pod in gateway.fleet_view().pods]
        assert (states.count("ready"), states.count("unused")) == (4, 16)
        lost = [pod for pod in fleet.pods.values() if pod.channel is not None]
        for pod in lost:
            pod.down = True
            pod.channel.lose()  # type: ignore[union-attr]
        await asyncio.sleep(3.0)
        assert gateway.fleet.aperture_size == 8
        await load(outcomes, 20, 1.0)
        assert outcomes.errors == []
        for pod in lost:
            pod.down = False
        await asyncio.sleep(6.0)
        assert gateway.fleet.aperture_size == 4
        assert {pod.id for pod in gateway.fleet.eligible} == {pod.name for pod in lost}
        assert sum(pod.channel is not None and not pod.channel.closed for pod in fleet.pods.values()) == 4

    virtually(test)


def test_a_pod_that_leaves_the_aperture_answers_what_it_has(virtually: Callable[[Test], None]) -> None:
    async def test(fleet: VirtualFleet) -> None:
        for number in range(20):
            fleet.pod(f"p{number}", seconds=1.0)
        gateway = await fleet.gateway(aperture=1, identity="gateway-3")
        outcomes = Outcomes(gateway)
        outcomes.submit(5.0)
        (used,) = [pod for pod in fleet.pods.values() if pod.channel is not None]
        others = [pod.endpoint() for pod in fleet.pods.values() if pod is not used]
        gateway.fleet.apply(snapshot(*others))
        await asyncio.sleep(2.0)
        assert (outcomes.answered, outcomes.errors) == (1, [])
        assert used.channel is not None
        assert used.channel.closed

    virtually(test)


def test_the_view_and_the_metrics_say_who_is_ejected_and_why(virtually: Callable[[Test], None]) -> None:
    async def test(fleet: VirtualFleet) -> None:
        gateway, outcomes = await of_three(fleet)
        ledger = gateway.fleet.pods["b"].ledger
        for _ in range(5):
            Ticket(ledger, asyncio.get_running_loop().time()).finish(Ending.FAILED, 0.0)
        await load(outcomes, 100, 0.2)
        view = gateway.fleet_view()
        (bad,) = [pod for pod in view.pods if pod.id == "b"]
        assert (bad.state, bad.ejected) == ("ejected", "failures")
        assert 0 < bad.ejected_ms <= 2000
        assert (view.totals.ejected, view.totals.panic, view.totals.aperture) == (1, False, 32)
        metrics = gateway.render_metrics()
        assert 'copydesk_gateway_ejections_total{reason="failures"} 1' in metrics
        assert 'copydesk_gateway_pods{state="ejected"} 1' in metrics
        assert "copydesk_gateway_aperture 32" in metrics
        assert "copydesk_gateway_panic 0" in metrics

    virtually(test)
