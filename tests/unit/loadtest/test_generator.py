"""Open and closed loop, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from copydesk.loadtest import Failures, Plan, Quantiles, RequestFailedError, run, run_closed
from tests.unit.loadtest.virtual_time import be_busy, now, run_virtually


def test_requests_leave_at_their_moments_whatever_the_answers_take() -> None:
    sent: list[tuple[int, float]] = []

    async def slow(index: int) -> None:
        sent.append((index, now()))
        await asyncio.sleep(5.0)

    report = run_virtually(run(Plan((0.0, 0.1, 0.1, 0.7), 4.0), slow))
    assert [index for index, _ in sent] == [0, 1, 2, 3]
    assert [moment for _, moment in sent] == pytest.approx([0.0, 0.1, 0.1, 0.7])
    assert (report.planned, report.sent, report.ok, report.failed) == (4, 4, 4, 0)
    assert report.duration_s == pytest.approx(5.7)
    assert report.achieved_rate == pytest.approx(4 / 5.7)
    assert report.offered_rate == 4.0


def test_a_stall_is_charged_to_every_request_due_meanwhile() -> None:
    async def stalled_until_one(index: int) -> None:
        await asyncio.sleep(1.0 - now())

    report = run_virtually(run(Plan.constant(10, 1.0), stalled_until_one))
    assert report.latency_ms is not None
    assert report.latency_ms.max == pytest.approx(1000)
    assert report.latency_ms.p50 == pytest.approx(500)


def test_a_late_generator_is_reported_and_its_delay_counts_as_latency() -> None:
    async def busy_at_first(index: int) -> None:
        if index == 0:
            be_busy(0.5)
        await asyncio.sleep(0.01)

    report = run_virtually(run(Plan.constant(10, 0.5), busy_at_first))
    assert report.lateness_ms is not None
    assert report.latency_ms is not None
    assert report.lateness_ms.max == pytest.approx(400)
    assert report.lateness_ms.p50 == pytest.approx(200)
    assert report.latency_ms.max == pytest.approx(510)


def test_what_is_unanswered_after_the_grace_is_cancelled_and_failed() -> None:
    cancelled: list[int] = []

    async def one_hangs(index: int) -> None:
        try:
            await asyncio.sleep(1000.0 if index == 1 else 0.5)
        except asyncio.CancelledError:
            cancelled.append(index)
            raise

    report = run_virtually(run(Plan.constant(10, 0.3), one_hangs, grace=2.0))
    assert cancelled == [1]
    assert report.ok == 2
    assert report.failures == (Failures(kind="unfinished", count=1, messages=("no answer when the run ended",)),)
    assert report.duration_s == pytest.approx(2.2)


def test_failures_of_any_kind_are_counted_and_do_not_stop_the_run() -> None:
    async def failing(index: int) -> None:
        if index % 2:
            raise RequestFailedError("http_429", f"busy {index}")
        if index == 4:
            raise ZeroDivisionError("a fault of the sender")

    report = run_virtually(run(Plan.constant(100, 0.1), failing))
    assert (report.sent, report.ok, report.failed) == (10, 4, 6)
    assert report.failures == (
        Failures(kind="http_429", count=5, messages=("busy 1", "busy 3", "busy 5")),
        Failures(kind="ZeroDivisionError", count=1, messages=("a fault of the sender",)),
    )


def test_a_cancelled_run_leaves_no_request_behind() -> None:
    ended: list[int] = []

    async def hanging(index: int) -> None:
        try:
            await asyncio.sleep(1000.0)
        finally:
            ended.append(index)

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.25):
                await run(Plan.constant(10, 60), hanging)
        assert ended == [0, 1, 2]

    run_virtually(main())


def test_an_empty_plan_gives_an_empty_report() -> None:
    async def never(index: int) -> None:
        raise AssertionError(index)

    report = run_virtually(run(Plan((), 1.0), never))
    assert (report.sent, report.achieved_rate, report.latency_ms, report.lateness_ms) == (0, 0.0, None, None)


def test_a_closed_loop_keeps_so_many_in_flight_and_no_more() -> None:
    in_flight: list[int] = [0]
    seen: list[int] = []

    async def counted(index: int) -> None:
        in_flight[0] += 1
        seen.append(in_flight[0])
        await asyncio.sleep(0.1)
        in_flight[0] -= 1

    report = run_virtually(run_closed(12, counted, concurrency=4))
    assert max(seen) == 4
    assert (report.sent, report.ok, report.offered_rate) == (12, 12, None)
    assert report.duration_s == pytest.approx(0.3)
    assert report.achieved_rate == pytest.approx(40)
    assert report.latency_ms is not None
    assert report.latency_ms.p99 == pytest.approx(100)
    assert report.lateness_ms == Quantiles(p50=0.0, p90=0.0, p99=0.0, max=0.0)


def test_a_closed_loop_goes_on_after_failures() -> None:
    async def failing(index: int) -> None:
        raise RequestFailedError("http_500", "broken")

    assert run_virtually(run_closed(5, failing, concurrency=2)).failed == 5


def test_a_closed_loop_of_nobody_is_refused() -> None:
    async def never(index: int) -> None:
        raise AssertionError(index)

    with pytest.raises(ValueError, match="at least 1"):
        run_virtually(run_closed(1, never, concurrency=0))
