"""How demand is counted and told, but for whole histories of requests."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from copydesk.common.messages import LATENCY_BOUNDS_MS, subject_token
from copydesk.common.rpc import Priority
from copydesk.gateway import faults
from copydesk.gateway.demand import LATENCY_BOUNDS, Demand
from copydesk.gateway.faults import ApiError
from copydesk.gateway.lane.express import BUCKETS
from copydesk.gateway.metrics import LATENCY_BUCKETS, Histogram, regrouped
from copydesk.gateway.openai.forms import Ended
from copydesk.gateway.openai.run import Run
from copydesk.gateway.openai.validation import parse_completion
from copydesk.gateway.reporter import Reporter
from copydesk.gateway.settings import GatewaySettings, process_name
from tests.fixtures.fake_pod import MODEL
from tests.unit.gateway.lane_rig import Rig, RigSeat, answer, request
from tests.unit.gateway.virtual_fleet import VirtualFleet
from tests.unit.loadtest.virtual_time import run_virtually


def reporter(demand: Demand) -> Reporter:
    return Reporter(demand, model="m", gateway="g", started_at=1_000.0, now=0.0)


# ---- reports


def test_an_idle_gateway_asserts_that_there_is_nothing() -> None:
    report = reporter(Demand(0.0)).report(1.0, 1_001.0)
    assert (report.model, report.gateway, report.sequence, report.closing) == ("m", "g", 1, False)
    assert (report.started_at, report.sent_at, report.interval_s) == (1_000.0, 1_001.0, 1.0)
    assert (report.in_flight, report.queued) == (0.0, 0.0)
    assert (report.completed, report.failed, report.shed) == (0, 0, 0)
    assert report.latency.counts == (0,) * (len(LATENCY_BOUNDS_MS) + 1)


def test_what_comes_and_goes_between_two_reports_is_in_the_mean() -> None:
    demand = Demand(0.0)
    reports = reporter(demand)
    demand.queued.enter(0.1)
    demand.queued.leave(0.3)
    demand.at_pods.enter(0.3)
    demand.at_pods.enter(0.5)
    demand.at_pods.leave(0.8)
    first, second = reports.report(1.0, 0.0), reports.report(3.0, 0.0)
    assert (first.in_flight, first.queued, first.interval_s) == pytest.approx((1.0, 0.2, 1.0))
    assert (second.in_flight, second.queued, second.interval_s) == pytest.approx((1.0, 0.0, 2.0))


def test_a_pause_of_the_process_does_not_disturb_the_mean() -> None:
    demand = Demand(0.0)
    reports = reporter(demand)
    reports.report(1.0, 0.0)
    for _ in range(7):
        demand.at_pods.enter(1.0)
    late = reports.report(301.0, 0.0)
    assert (late.in_flight, late.interval_s) == pytest.approx((7.0, 300.0))


def test_two_reports_at_once_say_the_same() -> None:
    demand = Demand(0.0)
    reports = reporter(demand)
    demand.at_pods.enter(0.0)
    first, again = reports.report(2.0, 0.0), reports.report(2.0, 0.0, closing=True)
    assert (again.in_flight, again.interval_s) == (first.in_flight, 0.0) == (1.0, 0.0)
    assert (again.sequence, again.closing) == (2, True)
    assert reports.report(3.0, 0.0).in_flight == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("error", "shed", "failed"),
    [
        (faults.overloaded(1000), 1, 0),
        (faults.no_endpoints(1.0), 1, 0),
        (faults.deadline_exceeded(shed=True), 1, 0),
        (faults.deadline_exceeded(), 0, 1),
        (faults.pod_unavailable("gone"), 0, 1),
        (faults.inference_failed("broken"), 0, 1),
        (faults.PodRefusalError("empty", "nothing to do", ""), 0, 0),
        (faults.rate_limited(1.0, 1), 0, 0),
    ],
)
def test_only_what_the_fleet_could_not_take_is_shed_and_no_fault_of_the_clients_failed(
    error: ApiError, shed: int, failed: int
) -> None:
    demand = Demand(0.0)
    demand.refused(error)
    assert (demand.shed, demand.failed, demand.completed) == (shed, failed, 0)
    demand.taken_along(error, 9)
    assert (demand.shed, demand.failed) == (10 * shed, failed)


def test_metrics_tell_the_same() -> None:
    demand = Demand(0.0)
    demand.at_pods.enter(0.0)
    demand.include(lambda now: 2 * now)
    demand.answered(0.5, 0.25)
    demand.refused(faults.overloaded(1))
    families = {name: dict(samples) for name, _, _, samples in demand.families(3.0)}
    assert families["work_total"] == {
        (("ending", "completed"),): 1,
        (("ending", "failed"),): 0,
        (("ending", "shed"),): 1,
    }
    assert families["at_pods_seconds_total"] == {(): 9.0}
    assert families["queued_seconds_total"] == {(): 0.0}
    assert families["answered_seconds_total"] == {(): 0.5}
    assert families["answered_at_pods_seconds_total"] == {(): 0.25}


# ---- a client's request of several parts


def test_a_text_that_is_refused_is_demand_for_all_of_its_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse() -> None:
        fleet = VirtualFleet(monkeypatch)
        fleet.pod("p", capacity=1)
        gateway = await fleet.gateway(queue=2, overcommit=1.0, request_concurrency=5)
        demand = gateway.dispatcher.demand
        text = " ".join(f"Here {number} go a sentence." for number in "abcdefgh")
        outcomes: list[object] = []
        gateway.corrector.submit([text], asyncio.get_running_loop().time() + 5.0, outcomes.append)
        await asyncio.sleep(0.01)
        (outcome,) = outcomes
        assert isinstance(outcome, ApiError)
        assert outcome.code == "overloaded"
        assert (demand.shed, demand.failed, demand.completed) == (8, 0, 0)
        assert (demand.at_pods.count, demand.queued.count) == (0, 0)
        await gateway.close()

    run_virtually(refuse())


class Deaf:
    """A reply that nobody reads."""

    def part(self, index: int, text: str) -> None: ...

    def finished(self, index: int, ended: Ended) -> None: ...

    def complete(self) -> None: ...

    def failed(self, error: ApiError) -> None: ...


def test_texts_that_are_refused_are_demand_each(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse() -> None:
        fleet = VirtualFleet(monkeypatch)
        fleet.pod("p", capacity=1)
        gateway = await fleet.gateway(queue=2, overcommit=1.0)
        job = parse_completion(b'{"prompt": ["a", "b", "c", "d", "e", "f"]}', MODEL, most_prompts=10)
        deadline = asyncio.get_running_loop().time() + 5.0
        dispatcher = gateway.dispatcher
        Run(
            dispatcher,
            job,
            Deaf(),
            deadline=deadline,
            priority=Priority.INTERACTIVE,
            concurrency=4,
            request_id="r",
        ).start()
        await asyncio.sleep(0.01)
        demand = dispatcher.demand
        assert (demand.shed, demand.failed, demand.completed) == (6, 0, 0)
        assert (demand.at_pods.count, demand.queued.count) == (0, 0)
        await gateway.close()

    run_virtually(refuse())


# ---- the lane


@given(st.lists(st.floats(0, 100)))
def test_the_buckets_of_the_lane_are_those_of_both_histograms(values: list[float]) -> None:
    fine = Histogram(BUCKETS)
    for value in values:
        fine.observe(value)
    for bounds in (LATENCY_BUCKETS, LATENCY_BOUNDS):
        coarse = Histogram(bounds)
        for value in values:
            coarse.observe(value)
        assert regrouped(fine.counts, BUCKETS, bounds) == coarse.counts


step = st.tuples(st.sampled_from(["send", "answer", "leave", "recall"]), st.integers(0, 20))


class Lane:
    """Requests in the lane, and between which bounds lies the time that they have spent at pods."""

    def __init__(self, native: ModuleType) -> None:
        self.rig = Rig(native)
        self.rig.learn()
        self.underway: list[tuple[RigSeat, int, float, float]] = []
        self.least = self.most = 0.0

    def send(self, _: int) -> None:
        before = time.monotonic()
        seat = self.rig.seat()
        assert seat.take(request())
        after = time.monotonic()
        self.rig.lane.flush()
        self.underway.append((seat, self.rig.ports[0].requests[-1].id, before, after))

    def end(self, how: str, which: int) -> None:
        seat, id_, earliest, latest = self.underway.pop(which % len(self.underway))
        before = time.monotonic()
        if how == "answer":
            self.rig.ports[0].port.feed(answer(id_))
        elif how == "leave":
            seat.seat.close()
        else:
            seat.seat.recall()
        self.least += before - latest
        self.most += time.monotonic() - earliest

    def check(self) -> None:
        forms, _, _, (_, recalled) = self.rig.lane.drain()
        spent = recalled + sum(seconds for form in forms for _, seconds, _ in form)
        assert self.least - 1e-9 <= spent <= self.most + 1e-9
        now = time.monotonic()
        open_ = self.rig.lane.underway_seconds(now)
        least = sum(now - latest for *_, latest in self.underway)
        assert least - 1e-9 <= open_ <= sum(now - earliest for _, _, earliest, _ in self.underway) + 1e-9
        self.least = self.most = 0.0


@given(script=st.lists(step, max_size=40))
def test_the_lane_knows_how_long_its_requests_have_been_at_pods(
    native: ModuleType, script: list[tuple[str, int]]
) -> None:
    lane = Lane(native)
    for how, which in script:
        if how == "send":
            lane.send(which)
        elif lane.underway:
            lane.end(how, which)
        if which % 3 == 0:
            lane.check()
    lane.check()


# ---- the name


@given(machine=st.text(max_size=300), process=st.integers(1, 2**22))
def test_the_name_of_a_process_can_stand_in_a_subject(machine: str, process: int) -> None:
    name = process_name(machine, process)
    assert subject_token(name) == name
    assert name.endswith(f"-{process}")
    assert process_name(machine, process + 1) != name


def test_machines_whose_long_names_begin_or_end_alike_differ() -> None:
    names = [f"{'gateway-' * 8}{end}" for end in "ab"] + [f"{begin}{'.example' * 9}" for begin in "ab"]
    assert len({process_name(name, 1) for name in names}) == 4


def test_a_name_that_is_set_is_used_and_one_that_cannot_be_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COPYDESK_GATEWAY_NAME", raising=False)
    assert GatewaySettings().gateway_name == process_name(socket.gethostname(), os.getpid())
    monkeypatch.setenv("COPYDESK_GATEWAY_NAME", "desk-0")
    assert GatewaySettings().gateway_name == "desk-0"
    monkeypatch.setenv("COPYDESK_GATEWAY_NAME", "desk 0")
    with pytest.raises(ValidationError, match="'desk 0' is no valid name"):
        GatewaySettings()
