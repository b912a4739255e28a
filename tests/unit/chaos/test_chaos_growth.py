"""Growth: what leaks is told from what swings, what is filled once, and what is killed and comes back."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.chaos.census import Census, Course, Reading, read_process
from copydesk.chaos.family import called, families, kin
from copydesk.chaos.growth import LEAST_READINGS, judge_growth, median_slope
from copydesk.chaos.task_counts import TaskCounts, parse_tasks

MIB = 2**20


def course(of: Callable[[int], Reading], count: int = 120) -> Course:
    return Course(name="gateway", pid=7, readings=tuple(of(i) for i in range(count)))


def reading(
    i: int,
    *,
    descriptors: float = 40,
    threads: float = 9,
    memory: float = 80 * MIB,
    tasks: float | None = None,
) -> Reading:
    return Reading(
        at=5.0 * i,
        descriptors=round(descriptors),
        connections=round(descriptors / 2),
        threads=round(threads),
        memory_bytes=round(memory),
        tasks=None if tasks is None else round(tasks),
    )


def leaks(*courses: Course) -> set[str]:
    return {growth.quantity for growth in judge_growth(courses) if growth.leaks}


def test_what_stays_or_swings_does_not_leak() -> None:
    rng = random.Random(3)
    assert leaks(course(reading)) == set()
    assert leaks(course(lambda i: reading(i, descriptors=40 + rng.randrange(30)))) == set()
    assert leaks(course(lambda i: reading(i, memory=(80 + rng.random() * 40) * MIB))) == set()


def test_a_descriptor_every_half_minute_leaks() -> None:
    assert leaks(course(lambda i: reading(i, descriptors=40 + i / 6))) == {"descriptors"}
    assert leaks(course(lambda i: reading(i, threads=9 + i / 10))) == {"threads"}


def test_a_task_every_ten_seconds_leaks_also_when_it_was_not_told_at_times() -> None:
    assert leaks(course(lambda i: reading(i, tasks=12 + i / 2))) == {"tasks"}
    assert leaks(course(lambda i: reading(i, tasks=None if i % 3 else 12 + i / 2))) == {"tasks"}
    assert leaks(course(lambda i: reading(i, tasks=12 + i % 7))) == set()


def test_of_tasks_that_were_hardly_ever_told_nothing_is_said() -> None:
    judged = judge_growth([course(lambda i: reading(i, tasks=i if i < LEAST_READINGS - 1 else None))])
    assert {growth.quantity for growth in judged} == {"descriptors", "connections", "threads", "memory_bytes"}


def test_memory_that_fills_once_does_not_leak_and_memory_that_goes_on_growing_does() -> None:
    assert leaks(course(lambda i: reading(i, memory=(80 + 300 * min(1.0, i / 30)) * MIB))) == set()
    assert leaks(course(lambda i: reading(i, memory=(80 + i) * MIB))) == {"memory_bytes"}


def test_single_spikes_are_no_slope() -> None:
    spikes = {70, 90, 119}
    assert leaks(course(lambda i: reading(i, descriptors=400 if i in spikes else 40))) == set()


def test_a_process_that_was_there_for_a_moment_tells_nothing() -> None:
    assert judge_growth([course(lambda i: reading(i, descriptors=40 + 50 * i), LEAST_READINGS - 1)]) == ()


@given(
    slope=st.floats(-10, 10),
    start=st.floats(-1000, 1000),
    count=st.integers(2, 400),
)
def test_the_slope_of_a_line_is_its_slope(slope: float, start: float, count: int) -> None:
    times = [5.0 * i for i in range(count)]
    assert median_slope(times, [start + slope * at for at in times]) == pytest.approx(slope, abs=1e-6)


def test_of_too_few_points_there_is_no_slope() -> None:
    assert median_slope([1.0], [5.0]) == 0.0


def test_a_process_tells_what_it_holds_and_one_that_is_gone_tells_nothing() -> None:
    before = read_process(os.getpid(), 1.0)
    read_end, write_end = os.pipe()
    after = read_process(os.getpid(), 2.0)
    os.close(read_end)
    os.close(write_end)
    assert before is not None
    assert after is not None
    assert after.descriptors == before.descriptors + 2
    assert after.memory_bytes > MIB
    assert after.threads >= 1
    assert read_process(2**22 + 1, 1.0) is None


async def test_a_census_keeps_a_course_for_each_process() -> None:
    async def tasks() -> dict[str, int]:
        return {"tests": 7}

    census = Census(lambda: {os.getpid(): "tests", 2**22 + 1: "gone"}, tasks)
    seconds = iter([1.0, 1.0, 6.0, 6.0])
    await census.count(lambda: next(seconds))
    await census.count(lambda: next(seconds))
    (mine,) = census.courses
    assert mine.name == "tests"
    assert [(one.at, one.tasks) for one in mine.readings] == [(1.0, 7), (6.0, 7)]


def test_tasks_are_read_from_the_metrics_of_a_process_and_of_those_it_tells_of() -> None:
    text = (
        "# HELP copydesk_inference_asyncio_tasks Tasks of the event loop that are not done.\n"
        'copydesk_inference_asyncio_tasks{process="worker-0"} 9.0\n'
        "copydesk_inference_supervisor_asyncio_tasks 21.0\n"
        "copydesk_inference_running 3.0\n"
    )
    assert parse_tasks("pod-1", text) == {"pod-1": 21, "pod-1/worker-0": 9}


async def test_who_does_not_answer_tells_no_tasks() -> None:
    counts = TaskCounts({"eds": "http://127.0.0.1:9/metrics"}, {})
    assert await counts.read() == {}
    await counts.close()


@pytest.mark.parametrize("title", ["--name=engine-0", "copydesk engine-0 gec-en"])
def test_processes_are_named_after_their_roots_and_their_own_names(title: str) -> None:
    with subprocess.Popen([title, "600"], executable="sleep") as child:
        try:
            assert called(os.getpid(), "engine") == (child.pid,)
            assert families({"pod-1": os.getpid()})[child.pid] == "pod-1/engine-0"
            assert kin(os.getpid())[0] == os.getpid()
            assert child.pid in kin(os.getpid())
            assert families({"pod-1": os.getpid(), "nats": child.pid})[child.pid] == "nats"
        finally:
            child.kill()
