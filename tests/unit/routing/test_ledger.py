"""The account that a gateway keeps of a pod."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.routing import Ending, HeardLoad, Ledger, Ticket

steps = st.lists(
    st.one_of(
        st.just(("start",)),
        st.tuples(st.just("finish"), st.integers(0, 30), st.sampled_from(Ending)),
        st.tuples(st.just("hear"), st.integers(0, 50), st.integers(0, 50), st.integers(0, 300)),
        st.tuples(st.just("restart"), st.integers(0, 300)),
        st.tuples(st.just("wait"), st.floats(0, 20)),
    ),
    max_size=60,
)


@given(steps)
def test_in_flight_is_what_was_started_and_not_finished_under_any_interleaving(script: list[tuple]) -> None:  # type: ignore[type-arg]
    ledger, now = Ledger(), 0.0
    tickets: list[Ticket] = []
    open_tickets: set[int] = set()
    for step in script:
        match step:
            case ("start",):
                open_tickets.add(len(tickets))
                tickets.append(ledger.start(now))
            case ("finish", index, ending) if index < len(tickets):
                assert tickets[index].finish(ending, now) is (index in open_tickets)
                open_tickets.discard(index)
            case ("hear", running, queued, capacity):
                ledger.hear(HeardLoad(running, queued, capacity, now))
            case ("restart", capacity):
                ledger.restart(capacity)
            case ("wait", seconds):
                now += seconds
        assert ledger.in_flight == len(open_tickets)
        standing = ledger.standing(now)
        assert standing.outstanding >= ledger.in_flight
        assert standing.capacity >= 1


def test_a_load_counts_with_what_was_sent_since() -> None:
    ledger = Ledger()
    ledger.hear(HeardLoad(running=4, queued=2, capacity=8, at=0.0))
    ledger.start(0.1)
    ledger.start(0.2)
    assert ledger.standing(0.3).outstanding == 8
    ledger.hear(HeardLoad(running=5, queued=0, capacity=8, at=0.4))
    assert ledger.standing(0.5).outstanding == 5


def test_a_load_older_than_three_seconds_is_unknown_and_own_requests_count() -> None:
    ledger = Ledger()
    ledger.hear(HeardLoad(running=40, queued=2, capacity=8, at=0.0))
    ledger.start(0.1)
    assert ledger.standing(3.0).outstanding == 43
    assert ledger.standing(3.1).outstanding == 1


def test_a_fast_failure_makes_a_pod_look_slow_and_each_further_one_doubles_it() -> None:
    ledger = Ledger()
    ledger.start(0.0).finish(Ending.ANSWERED, 0.05)
    assert ledger.latency_ms(0.05) == pytest.approx(50.0)
    ledger.start(0.05).finish(Ending.FAILED, 0.051)
    assert ledger.latency_ms(0.051) == pytest.approx(1000.0)
    ledger.start(0.051).finish(Ending.FAILED, 0.051)
    assert ledger.latency_ms(0.051) == pytest.approx(2000.0)
    assert ledger.errors == 2


def test_failures_are_forgiven_as_time_passes() -> None:
    ledger = Ledger(tau=10.0)
    ledger.start(0.0).finish(Ending.FAILED, 0.0)
    late = ledger.latency_ms(60.0)
    assert late is not None
    assert late < 5.0


def test_a_refusal_is_no_failure_and_leaves_the_latency_alone() -> None:
    ledger = Ledger()
    ledger.start(0.0).finish(Ending.REFUSED, 5.0)
    assert ledger.latency_ms(5.0) is None
    assert ledger.errors == 0


def test_an_abandoned_request_counts_only_as_the_time_it_had_at_least_taken() -> None:
    ledger = Ledger()
    ledger.start(0.0).finish(Ending.ANSWERED, 0.2)
    ledger.start(0.2).finish(Ending.ABANDONED, 0.21)
    assert ledger.latency_ms(0.21) == pytest.approx(200.0, rel=0.01)
    ledger.start(0.21).finish(Ending.ABANDONED, 5.21)
    assert ledger.latency_ms(5.21) == pytest.approx(5000.0)


def test_a_new_connection_makes_what_was_heard_before_void() -> None:
    ledger = Ledger()
    ledger.hear(HeardLoad(running=9, queued=9, capacity=4, at=0.0))
    ledger.restart(capacity=16)
    assert ledger.standing(0.0).outstanding == 0
    assert ledger.capacity == 16
