"""A server that stands still for two seconds: an open loop reports it, as users felt it."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from copydesk.loadtest import Plan, run_closed
from copydesk.loadtest.client import Client, Target, correction_bodies
from copydesk.loadtest.generators import Generators
from copydesk.loadtest.load_report import LoadReport, report_load
from tests.integration.loadtest.conftest import Slots, StartSlots

RATE, SECONDS, FREEZE_AT, FREEZE = 40.0, 4.0, 1.0, 2.0


async def freeze(server: Slots) -> None:
    """Stop the whole process, and let it go on after two seconds."""
    await asyncio.sleep(FREEZE_AT)
    os.kill(server.pid, signal.SIGSTOP)
    try:
        await asyncio.sleep(FREEZE)
    finally:
        os.kill(server.pid, signal.SIGCONT)


async def report_of_a_freeze(server: Slots) -> LoadReport:
    target = Target(url=server.url, bodies=correction_bodies(["one", "two"]))
    async with Generators(target) as generators:
        await generators.fly([0.0])  # the process is there
        flying = asyncio.create_task(generators.fly(Plan.constant(RATE, SECONDS).offsets, grace=10.0))
        await freeze(server)
        samples = await flying
    return report_load(samples, shape="constant", seconds=SECONDS, slo_ms=1000.0, processes=1)


async def test_a_freeze_is_in_the_report_with_everybody_whom_it_hit(start_slots: StartSlots) -> None:
    report = await report_of_a_freeze(start_slots(8, 5.0))
    assert (report.ok, report.errors, report.shed) == (160, 0, 0)
    assert report.latency_ms is not None
    assert report.stall_s == pytest.approx(FREEZE, abs=0.5)
    assert report.latency_ms.max == pytest.approx(1000 * FREEZE, abs=500)
    # Everybody who was due in the freeze waited for its end: half of all, and half of these more than a second.
    hit = sum(one.offered for one in report.moments if one.max_ms is not None and one.max_ms > 100)
    assert 0.4 * report.planned < hit < 0.7 * report.planned
    assert report.latency_ms.p99 > 1500
    assert report.good_share == pytest.approx(0.75, abs=0.13)
    # Sent on time all the same.
    assert report.late_p99_ms < 500
    worst = max(report.moments, key=lambda one: one.max_ms or 0.0)
    assert FREEZE_AT - 0.5 <= worst.at <= FREEZE_AT + 0.75


async def test_one_user_after_another_would_have_hidden_it(start_slots: StartSlots) -> None:
    server = start_slots(8, 20.0)
    client = Client(Target(url=server.url, bodies=correction_bodies(["one"])))
    freezing = asyncio.create_task(freeze(server))
    report = await run_closed(60, client.send, concurrency=1)
    await freezing
    client.close()
    assert report.latency_ms is not None
    # The freeze is one request out of sixty; users that go on arriving would have felt it for two seconds.
    assert report.latency_ms.max > 1500
    assert report.latency_ms.p90 < 500
