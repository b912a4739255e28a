"""Generator processes against a real server."""

from __future__ import annotations

import os
import signal

import psutil
import pytest

from copydesk.loadtest import Plan
from copydesk.loadtest.client import Target, correction_bodies
from copydesk.loadtest.generators import GeneratorError, Generators
from tests.integration.loadtest.conftest import StartSlots


def target(url: str, **headers: str) -> Target:
    return Target(url=url, bodies=correction_bodies(["one", "two", "three"]), headers=headers)


def children() -> list[psutil.Process]:
    """The generator processes that this test has."""
    return [one for one in psutil.Process().children() if "copydesk.loadtest.process" in one.cmdline()]


async def test_several_processes_share_one_plan_and_lose_nothing_of_it(start_slots: StartSlots) -> None:
    server = start_slots(100, 1.0)
    offsets = Plan.constant(100, 0.5).offsets
    async with Generators(target(server.url)) as generators:
        samples = await generators.fly(offsets, processes=3)
        assert len(children()) == 3
    assert children() == []
    assert [round(sample.planned, 6) for sample in samples] == [round(offset, 6) for offset in offsets]
    assert all(sample.failure is None and sample.finished > sample.sent >= sample.planned for sample in samples)


async def test_all_that_is_due_at_once_is_in_flight_at_once(start_slots: StartSlots) -> None:
    server = start_slots(300, 300.0)
    async with Generators(target(server.url)) as generators:
        await generators.fly([0.0])
        samples = await generators.fly([0.0] * 300)
    # One after another, or a hundred at a time, these would take several times the 300 ms of one.
    assert max(sample.finished for sample in samples) < 2 * 0.3 + max(sample.lateness for sample in samples) + 1.0
    assert max(sample.sent for sample in samples) < min(sample.finished for sample in samples)


async def test_what_has_no_answer_in_time_is_cut_off_and_counts_as_failed(start_slots: StartSlots) -> None:
    server = start_slots(1, 60_000.0)
    async with Generators(target(server.url)) as generators:
        samples = await generators.fly([0.0, 0.01], grace=0.2)
    assert [sample.failure.kind for sample in samples if sample.failure] == ["unfinished", "unfinished"]


async def test_refusals_and_a_closed_port_are_failures_of_their_kind(start_slots: StartSlots) -> None:
    server = start_slots(1, 1.0, "secret")
    for headers, url, kind in (
        ({}, server.url, "http_401"),
        ({"Authorization": "Bearer secret"}, server.url, None),
        ({}, "http://127.0.0.1:9", "connect"),
    ):
        async with Generators(target(url, **headers)) as generators:
            (sample,) = await generators.fly([0.0])
        assert (sample.failure.kind if sample.failure else None) == kind


async def test_a_process_that_dies_is_an_error_and_not_a_hang(start_slots: StartSlots) -> None:
    server = start_slots(1, 1.0)
    async with Generators(target(server.url)) as generators:
        await generators.fly([0.0])
        (process,) = children()
        os.kill(process.pid, signal.SIGKILL)
        with pytest.raises(GeneratorError):
            await generators.fly([0.0])


async def test_a_signal_to_the_whole_group_is_for_the_command_to_understand(start_slots: StartSlots) -> None:
    server = start_slots(1, 1.0)
    async with Generators(target(server.url)) as generators:
        await generators.fly([0.0])
        (process,) = children()
        for number in (signal.SIGTERM, signal.SIGINT):
            os.kill(process.pid, number)
        (sample,) = await generators.fly([0.0])
    assert sample.failure is None
    assert children() == []
