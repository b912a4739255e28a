"""Who goes on to the pods, who waits, and who is refused."""

from __future__ import annotations

from collections import OrderedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.routing import AdmissionQueue, Pace, PaceMeter, Refusal, allowance, retry_after

UNKNOWN = Pace()
INTERACTIVE, BATCH = 0, 1


def test_a_gateway_may_use_what_others_leave_and_a_little_more_than_all() -> None:
    assert allowance(100, 4, 0, overcommit=1.25) == 125
    assert allowance(100, 4, 60, overcommit=1.25) == 65


def test_a_gateway_that_comes_late_to_a_full_fleet_gets_one_request_a_pod() -> None:
    assert allowance(100, 4, 500, overcommit=1.25) == 4


def test_interactive_work_goes_first_and_else_who_came_first() -> None:
    queue: AdmissionQueue[str] = AdmissionQueue(10)
    for name, priority in (("b1", BATCH), ("i1", INTERACTIVE), ("b2", BATCH), ("i2", INTERACTIVE)):
        assert queue.offer(name, priority, 60.0, pace=UNKNOWN, now=0.0) == (None, None)
    assert [queue.take() for _ in range(5)] == [*((name, 60.0) for name in ("i1", "i2", "b1", "b2")), None]


def test_a_full_queue_refuses_its_like_and_gives_up_its_youngest_batch_work_for_more_urgent() -> None:
    queue: AdmissionQueue[str] = AdmissionQueue(2)
    queue.offer("b1", BATCH, 60.0, pace=UNKNOWN, now=0.0)
    queue.offer("b2", BATCH, 60.0, pace=UNKNOWN, now=0.0)
    assert queue.offer("b3", BATCH, 60.0, pace=UNKNOWN, now=0.0) == (Refusal.FULL, None)
    assert queue.offer("i1", INTERACTIVE, 60.0, pace=UNKNOWN, now=0.0) == (None, "b2")
    assert queue.offer("i2", INTERACTIVE, 60.0, pace=UNKNOWN, now=0.0) == (None, "b1")
    assert queue.offer("i3", INTERACTIVE, 60.0, pace=UNKNOWN, now=0.0) == (Refusal.FULL, None)


def test_what_cannot_be_in_time_is_refused_at_once() -> None:
    queue: AdmissionQueue[int] = AdmissionQueue(100)
    pace = Pace(rate=10.0, service=0.5)
    taken = [queue.offer(i, INTERACTIVE, 1.0, pace=pace, now=0.0)[0] is None for i in range(10)]
    assert taken == [True] * 5 + [False] * 5
    assert queue.offer(10, BATCH, 1.0, pace=pace, now=0.0) == (Refusal.LATE, None)


def test_batch_work_does_not_count_for_who_goes_before_it() -> None:
    queue: AdmissionQueue[int] = AdmissionQueue(100)
    pace = Pace(rate=10.0, service=0.0)
    for i in range(50):
        queue.offer(i, BATCH, 60.0, pace=pace, now=0.0)
    assert queue.offer(99, INTERACTIVE, 0.2, pace=pace, now=0.0)[0] is None


def test_those_who_have_no_chance_any_more_are_told_and_the_others_move_up() -> None:
    queue: AdmissionQueue[str] = AdmissionQueue(100)
    for name, deadline in (("soon", 0.05), ("later", 5.0), ("late", 0.25)):
        queue.offer(name, INTERACTIVE, deadline, pace=UNKNOWN, now=0.0)
    assert queue.hopeless(Pace(rate=10.0), now=0.0) == ["soon"]
    assert queue.hopeless(Pace(rate=10.0), now=0.1) == ["late"]
    assert len(queue) == 1


def test_the_pace_is_measured_only_while_somebody_waits() -> None:
    meter = PaceMeter(smoothing=1.0)
    meter.read(0, places=10, usual=0.1, slow=0.2, busy=False, now=0.0)
    idle = meter.read(1, places=10, usual=0.1, slow=0.2, busy=False, now=1.0)
    assert idle.rate == pytest.approx(100.0)
    busy = meter.read(51, places=10, usual=0.1, slow=0.2, busy=True, now=2.0)
    assert busy.rate == pytest.approx(50.0)
    assert busy.service == 0.2
    assert meter.read(52, places=10, usual=0.1, slow=0.2, busy=False, now=3.0).rate == pytest.approx(50.0)
    assert meter.read(53, places=10, usual=0.1, slow=0.2, busy=False, now=30.0).rate == pytest.approx(100.0)


def test_by_an_unknown_pace_nobody_is_late() -> None:
    pace = PaceMeter().read(0, places=10, usual=None, slow=None, busy=False, now=0.0)
    assert pace.wait(1_000_000) == 0.0


def test_one_is_told_to_come_back_when_those_who_wait_now_have_had_their_turn() -> None:
    assert retry_after(Pace(rate=10.0), 49) == pytest.approx(5.0)
    assert retry_after(Pace(rate=10.0), 0) == 1.0
    assert retry_after(Pace(rate=0.1), 500) == 60.0


steps = st.lists(
    st.one_of(
        st.tuples(st.just("offer"), st.integers(0, 1), st.floats(0, 10)),
        st.tuples(st.just("take")),
        st.tuples(st.just("discard"), st.integers(0, 40)),
        st.tuples(st.just("hopeless"), st.floats(0.1, 100)),
    ),
    max_size=60,
)


@given(steps, st.integers(0, 6))
def test_everybody_leaves_once_and_the_bound_holds_under_any_interleaving(script: list[tuple], limit: int) -> None:  # type: ignore[type-arg]
    queue: AdmissionQueue[int] = AdmissionQueue(limit)
    waiting: OrderedDict[int, int] = OrderedDict()
    for number, step in enumerate(script):
        match step:
            case ("offer", priority, deadline):
                refusal, displaced = queue.offer(number, priority, deadline, pace=UNKNOWN, now=0.0)
                if displaced is not None:
                    assert waiting.pop(displaced) > priority
                if refusal is None:
                    waiting[number] = priority
            case ("take",):
                taken = queue.take()
                expected = min(waiting, key=lambda one: (waiting[one], one), default=None)
                assert (None if taken is None else taken[0]) == expected
                if expected is not None:
                    del waiting[expected]
            case ("discard", one):
                assert queue.discard(one) is (waiting.pop(one, None) is not None)
            case ("hopeless", rate):
                for late in queue.hopeless(Pace(rate=rate), 0.0):
                    del waiting[late]
        assert len(queue) == len(waiting) <= limit
        assert queue.waiting(INTERACTIVE) == sum(priority == INTERACTIVE for priority in waiting.values())
