"""The last minutes of the gateway: bounded, and true."""

from __future__ import annotations

import asyncio
import math

import httpx
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.common.messages import ScaleDecision
from copydesk.gateway.app import build_app
from copydesk.gateway.decisions import KEPT_DECISIONS, REASON_CHARACTERS
from copydesk.gateway.faults import ApiError
from copydesk.gateway.history import KEPT_SECONDS, SILENT_SECONDS, History, Work
from copydesk.gateway.metrics import Metrics
from copydesk.gateway.schemas import FleetHistory
from copydesk.gateway.validation import parse_since
from tests.unit.gateway.conftest import Desk


def test_rates_are_of_the_time_that_passed() -> None:
    history, work = History(started_at=1000.0, now=50.0), Work()
    for _ in range(6):
        work.count(200, 0.1)
    work.count(429, 0.001)
    work.count(503, 1.0)
    work.count(400, 0.001)
    history.record(work, 7, 51.0)
    work.count(200, 0.1)
    history.record(work, 0, 53.0)  # a loop that was held up
    body = history.body(0)
    assert body.at_ms == [1_001_000, 1_003_000]
    assert body.requests_per_s == [9.0, 0.5]
    assert body.refused_per_s == [1.0, 0.0]
    assert body.failed_per_s == [1.0, 0.0]
    assert body.in_flight == [7, 0]


@given(st.lists(st.floats(0.0002, 60.0), min_size=1, max_size=300))
def test_percentiles_are_right_within_an_eighth(latencies: list[float]) -> None:
    history, work = History(started_at=0.0, now=0.0), Work()
    for seconds in latencies:
        work.count(200, seconds)
    history.record(work, 0, 1.0)
    body = history.body(0)
    ordered = sorted(latencies)
    for share, (shown,) in ((0.5, body.p50_ms), (0.99, body.p99_ms)):
        exact = ordered[math.ceil(share * len(ordered)) - 1] * 1000
        assert shown is not None
        assert exact * (1 - 1e-5) <= shown <= exact * 1.13 + 0.001


def test_only_successes_count_for_the_latency() -> None:
    history, work = History(started_at=0.0, now=0.0), Work()
    for _ in range(99):
        work.count(429, 0.0001)
        work.count(504, 60.0)
    work.count(200, 0.25)
    history.record(work, 0, 1.0)
    assert history.body(0).p50_ms == history.body(0).p99_ms == [pytest.approx(250, rel=0.13)]


def test_the_latency_of_long_ago_is_forgotten() -> None:
    history, work = History(started_at=0.0, now=0.0), Work()
    work.count(200, 5.0)
    history.record(work, 0, 1.0)
    for second in range(2, int(SILENT_SECONDS) + 3):
        history.record(work, 0, float(second))
    assert history.body(0).p50_ms[0] is not None
    assert history.body(0).p50_ms[-1] is None
    work.count(200, 0.1)
    history.record(work, 0, 20.0)
    assert history.body(0).p99_ms[-1] == pytest.approx(100, rel=0.13)


def test_it_takes_no_more_room_after_a_day() -> None:
    history, work = History(started_at=0.0, now=0.0), Work()
    for second in range(1, KEPT_SECONDS * 3):
        work.count(200, 0.01)
        history.record(work, 1, float(second))
        history.hear(ScaleDecision(model="m", sent_at=1.0, replicas=second, reason="x" * 5000), float(second))
    body = history.body(0)
    columns = (body.at_ms, body.requests_per_s, body.refused_per_s, body.in_flight, body.p50_ms, body.p99_ms)
    assert {len(column) for column in columns} == {KEPT_SECONDS}
    assert len(body.scale_decisions) == KEPT_DECISIONS
    assert len(body.scale_decisions[0].reason) == REASON_CHARACTERS


def test_who_has_the_first_part_gets_the_rest() -> None:
    history, work = History(started_at=0.0, now=0.0), Work()
    for second in (1.0, 2.0, 3.0):
        history.record(work, 0, second)
    whole = history.body(0)
    assert history.body(whole.at_ms[0]).at_ms == whole.at_ms[1:]
    assert history.body(whole.at_ms[-1]).at_ms == []
    assert msgspec.json.decode(msgspec.json.encode(whole), type=FleetHistory) == whole


def test_a_clock_that_did_not_move_adds_nothing() -> None:
    history, work = History(started_at=0.0, now=5.0), Work()
    history.record(work, 0, 5.0)
    assert history.body(0).at_ms == []


def test_decisions_are_told_as_they_were_heard() -> None:
    history = History(started_at=0.0, now=0.0)
    assert history.body(0).scale_decisions == []
    assert history.body(0).scale_heard_ms is None
    history.hear(ScaleDecision(model="m", sent_at=12.5, replicas=4, reason="demand grew"), 13.0)
    assert history.body(0).scale_heard_ms == 13_000
    (told,) = history.body(0).scale_decisions
    assert (told.at_ms, told.replicas, told.reason) == (12_500, 4, "demand grew")


def test_decisions_that_leave_the_size_as_it_is_are_not_told() -> None:
    history = History(started_at=0.0, now=0.0)
    for second, replicas in enumerate((2, 2, 3, 3, 3, 2)):
        history.hear(ScaleDecision(model="m", sent_at=second, replicas=replicas, reason=f"reason {second}"), 0.0)
    told = [(decision.replicas, decision.reason) for decision in history.body(0).scale_decisions]
    assert told == [(2, "reason 0"), (3, "reason 2"), (2, "reason 5")]


def test_looking_at_the_fleet_is_no_work_for_it() -> None:
    metrics = Metrics()
    for route in ("/v1/fleet", "/v1/fleet/history", "/", "/metrics", "unmatched"):
        metrics.request(route, 200, 0.001)
    assert metrics.work.requests == 0
    for route in ("/v1/correct", "/v1/completions", "/v1/chat/completions", "/v2/check"):
        metrics.request(route, 200, 0.001)
    assert metrics.work.requests == metrics.work.answered == 4


@pytest.mark.parametrize("value", ["", "soon", "-1", "1.5", "1" * 16, "\u0663"])
def test_since_is_a_time_or_an_error(value: str) -> None:
    assert (parse_since(None), parse_since("0"), parse_since("1732960000000")) == (0, 0, 1732960000000)
    with pytest.raises(ApiError) as raised:
        parse_since(value)
    assert (raised.value.status, raised.value.code, raised.value.param) == (400, "invalid_since", "since")


async def test_the_gateway_counts_what_it_answered_and_tells_it(desk: Desk) -> None:
    gateway = await desk.gateway(await desk.pod("a"))
    transport = httpx.ASGITransport(build_app(gateway, None))
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
        gateway.metrics.request("/v1/correct", 200, 0.05)
        gateway.history.record(gateway.metrics.work, 3, asyncio.get_running_loop().time())
        body = msgspec.json.decode((await client.get("/v1/fleet/history")).content, type=FleetHistory)
        assert body.requests_per_s[0] > 0
        assert body.in_flight == [3]
        later = await client.get("/v1/fleet/history", params={"since": body.at_ms[0]})
        assert msgspec.json.decode(later.content, type=FleetHistory).at_ms == []
        wrong = await client.get("/v1/fleet/history", params={"since": "yesterday"})
        assert (wrong.status_code, wrong.json()["error"]["code"]) == (400, "invalid_since")
