"""A request that changes hands between the lane and Python, or goes to a pod that speaks HTTP, counts once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from types import ModuleType

import pytest

from copydesk.common.messages import DemandReport
from copydesk.gateway.reporter import Reporter
from tests.fixtures.fake_pod import MODEL
from tests.fixtures.openai_server import OpenAiServer
from tests.integration.gateway.lane.house import Client, House, ask_for, house
from tests.unit.gateway.conftest import eventually, snapshot


def reporting(at: House) -> Reporter:
    demand = at.gateway.dispatcher.demand
    return Reporter(demand, model="m", gateway="g", started_at=0.0, now=time.monotonic())


def report(reporter: Reporter) -> DemandReport:
    return reporter.report(time.monotonic(), 0.0)


async def underway(at: House, clients: int) -> list[Client]:
    """So many clients with a request at a pod each, in the lane."""
    found = [await at.learned() for _ in range(clients)]
    at.behave("hold")
    for number, client in enumerate(found):
        client.send(ask_for(f"Number {number}."))
    await at.holding(clients)
    assert at.underway == clients
    return found


@pytest.mark.parametrize("handed_back", [False, True])
async def test_the_time_at_pods_is_that_of_the_answers_whoever_carried_them(
    native: ModuleType, handed_back: bool
) -> None:
    async with house(native, "a", "b") as at:
        reporter = reporting(at)
        clients = await underway(at, 4)
        before = report(reporter)
        await asyncio.sleep(0.2)
        if handed_back:
            assert at.gateway.lane is not None
            at.gateway.lane._lane.recall()
            assert at.underway == 0
        await asyncio.sleep(0.2)
        during = report(reporter)
        assert during.in_flight == pytest.approx(4.0, abs=0.1)
        at.release()
        assert [(await client.answer()).status for client in clients] == [200] * 4
        await at.idle()
        after = report(reporter)
        assert (after.completed - before.completed, after.failed, after.shed) == (4, 0, 0)
        assert sum(after.latency.counts) == after.completed
        spent = sum(one.in_flight * one.interval_s for one in (before, during, after))
        assert spent == pytest.approx(after.latency.at_pods_s, rel=0.05)


async def test_what_a_client_gives_up_was_demand_as_long_as_it_lasted(native: ModuleType) -> None:
    async with house(native) as at:
        clients = await underway(at, 3)
        reporter = reporting(at)
        before = report(reporter)
        for client in clients:
            client.leave()
        await eventually(lambda: at.underway == 0)
        at.release()
        last = report(reporter)
        await asyncio.sleep(0.01)
        assert 0.0 < last.in_flight <= 3.0
        assert report(reporter).in_flight == 0.0
        assert (last.failed, last.shed, last.completed) == (0, 0, before.completed)


def posted(path: str, kind: str, body: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


CHECK = posted("/v2/check", "application/x-www-form-urlencoded", b"language=en-US&text=They+go.+We+go.+You+go.")
PROMPTS = posted("/v1/completions", "application/json", b'{"prompt": ["Once", "Twice"]}')


@pytest.fixture
async def server() -> AsyncIterator[OpenAiServer]:
    server = await OpenAiServer(model=MODEL).start()
    yield server
    await server.stop()


@pytest.mark.parametrize("http", [False, True])
async def test_each_api_and_each_kind_of_pod_counts_what_pods_get(
    native: ModuleType, server: OpenAiServer, http: bool
) -> None:
    async with house(native, slow_start_ms=0) as at:
        if http:
            at.gateway.fleet.apply(snapshot(server.endpoint(capacity=8)))
            await eventually(lambda: [pod.endpoint.port for pod in at.gateway.fleet.eligible] == [server.port])
        reporter, client = reporting(at), await at.client()
        for data, requests in (
            (ask_for("They go. We go.", path="/v1/correct"), 2),
            (CHECK, 3),
            (ask_for("Once upon a time", stream=True), 1),
            (ask_for("Once upon a time", path="/v1/chat/completions"), 1),
            (PROMPTS, 2),
        ):
            before = report(reporter)
            client.send(data)
            answer = await client.answer()
            assert answer.status == 200, answer.body
            after = report(reporter)
            assert after.completed - before.completed == requests, data
        assert (after.failed, after.shed, sum(after.latency.counts)) == (0, 0, after.completed)
        assert (await client.ask("a", max_tokens=-1)).status == 400
        last = report(reporter)
        assert (last.completed, last.failed, last.shed) == (after.completed, 0, 0)
        await eventually(lambda: not at.gateway.fleet._retiring)
