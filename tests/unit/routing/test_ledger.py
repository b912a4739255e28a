"""The account that a gateway keeps of a pod."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.routing import Ending, HeardLoad, Ledger, LedgerRules, Ticket

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
                tickets.append(Ticket(ledger, now, timed=len(tickets) % 3 > 0))
            case ("finish", index, ending) if index < len(tickets):
                assert tickets[index].finish(ending, now) is (index in open_tickets)
                open_tickets.discard(index)
            case ("hear", running, queued, capacity):
                ledger.hear(running, queued, capacity, now)
            case ("restart", capacity):
                ledger.restart(capacity)
            case ("wait", seconds):
                now += seconds
        assert ledger.in_flight == len(open_tickets)
        assert ledger.outstanding(now) >= ledger.in_flight
        assert ledger.capacity >= 1
        assert ledger.silent(now) >= 0.0


@pytest.mark.parametrize("number", [-(2**63), -1, 2**31, 2**64 - 1])
def test_a_pod_cannot_say_more_of_itself_than_there_can_be(number: int) -> None:
    ledger = Ledger()
    ledger.hear(number, number, number, 0.0)
    assert ledger.load is not None
    assert 0 <= ledger.load.running <= 2**30
    assert 0 <= ledger.load.queued <= 2**30
    assert 1 <= ledger.capacity <= 2**30
    assert 0 <= ledger.outstanding(0.0) <= 2**31
    ledger.restart(number)
    assert 1 <= ledger.capacity <= 2**30


def test_a_load_counts_with_what_was_sent_since() -> None:
    ledger = Ledger()
    ledger.hear(4, 2, 8, 0.0)
    Ticket(ledger, 0.1)
    Ticket(ledger, 0.2)
    assert ledger.outstanding(0.3) == 8
    ledger.hear(5, 0, 8, 0.4)
    assert ledger.outstanding(0.5) == 5


def test_a_load_older_than_three_seconds_is_unknown_and_own_requests_count() -> None:
    ledger = Ledger()
    ledger.hear(40, 2, 8, 0.0)
    Ticket(ledger, 0.1)
    assert ledger.outstanding(3.0) == 43
    assert ledger.outstanding(3.1) == 1


def test_a_fast_failure_makes_a_pod_look_slow_and_each_further_one_doubles_it() -> None:
    ledger = Ledger()
    Ticket(ledger, 0.0).finish(Ending.ANSWERED, 0.05)
    assert ledger.latency_ms(0.05) == pytest.approx(50.0)
    Ticket(ledger, 0.05).finish(Ending.FAILED, 0.051)
    assert ledger.latency_ms(0.051) == pytest.approx(1000.0)
    Ticket(ledger, 0.051).finish(Ending.FAILED, 0.051)
    assert ledger.latency_ms(0.051) == pytest.approx(2000.0)
    assert ledger.errors == 2


def test_failures_are_forgiven_as_time_passes() -> None:
    ledger = Ledger(tau=10.0)
    Ticket(ledger, 0.0).finish(Ending.FAILED, 0.0)
    late = ledger.latency_ms(60.0)
    assert late is not None
    assert late < 5.0


def test_a_refusal_is_no_failure_and_leaves_the_latency_alone() -> None:
    ledger = Ledger()
    Ticket(ledger, 0.0).finish(Ending.REFUSED, 5.0)
    assert ledger.latency_ms(5.0) is None
    assert ledger.errors == 0


def test_an_abandoned_request_counts_only_as_the_time_it_had_at_least_taken() -> None:
    ledger = Ledger()
    Ticket(ledger, 0.0).finish(Ending.ANSWERED, 0.2)
    Ticket(ledger, 0.2).finish(Ending.ABANDONED, 0.21)
    assert ledger.latency_ms(0.21) == pytest.approx(200.0, rel=0.01)
    Ticket(ledger, 0.21).finish(Ending.ABANDONED, 5.21)
    assert ledger.latency_ms(5.21) == pytest.approx(5000.0)


def test_a_new_connection_makes_what_was_heard_before_void() -> None:
    ledger = Ledger()
    ledger.hear(9, 9, 4, 0.0)
    ledger.restart(capacity=16)
    assert ledger.outstanding(0.0) == 0
    assert ledger.capacity == 16


def test_a_pod_says_what_it_last_told_of_its_load() -> None:
    ledger = Ledger()
    assert ledger.load is None
    ledger.hear(3, 2, 8, 1.5)
    assert ledger.load == HeardLoad(running=3, queued=2, capacity=8, at=1.5)


def test_failures_are_counted_until_an_answer_comes() -> None:
    ledger = Ledger()
    for _ in range(3):
        Ticket(ledger, 0.0).finish(Ending.FAILED, 0.001)
    Ticket(ledger, 0.0).finish(Ending.REFUSED, 0.001)
    Ticket(ledger, 0.0).finish(Ending.ABANDONED, 0.001)
    assert ledger.failures == 3
    Ticket(ledger, 0.0).finish(Ending.ANSWERED, 0.1)
    assert ledger.failures == 0


def test_a_deadline_that_passes_long_after_the_usual_time_is_a_failure_and_a_short_one_is_not() -> None:
    ledger = Ledger()
    Ticket(ledger, 0.0).finish(Ending.ANSWERED, 0.1)
    Ticket(ledger, 1.0).finish(Ending.EXPIRED, 1.15)
    assert ledger.failures == 0
    Ticket(ledger, 2.0).finish(Ending.EXPIRED, 2.25)
    assert ledger.failures == 1


def test_silence_is_the_time_for_which_requests_have_waited_and_nothing_was_said() -> None:
    ledger = Ledger()
    assert ledger.silent(5.0) == 0.0
    first, second = Ticket(ledger, 5.0), Ticket(ledger, 6.0)
    assert ledger.silent(8.0) == 3.0
    first.finish(Ending.ANSWERED, 8.0)
    assert ledger.silent(9.0) == 1.0
    ledger.speak(9.5)
    assert ledger.silent(10.0) == 0.5
    second.finish(Ending.ANSWERED, 10.0)
    assert ledger.silent(20.0) == 0.0
    Ticket(ledger, 21.0)
    assert ledger.silent(22.0) == 1.0


def test_a_pod_that_is_silent_looks_as_slow_as_it_has_been_silent_at_least() -> None:
    ledger = Ledger()
    ledger.count_silence(1.0)
    assert ledger.latency_ms(1.0) is None
    Ticket(ledger, 1.0).finish(Ending.ANSWERED, 1.1)
    Ticket(ledger, 2.0)
    ledger.count_silence(2.01)
    assert ledger.latency_ms(2.01) == pytest.approx(100.0, rel=0.2)
    ledger.count_silence(2.5)
    assert ledger.latency_ms(2.5) == pytest.approx(500.0)
    assert (ledger.samples, ledger.failures) == (1, 0)


def test_how_long_a_text_takes_to_write_says_nothing_of_the_pod() -> None:
    ledger = Ledger()
    ticket = Ticket(ledger, 0.0, timed=False)
    assert ledger.silent(60.0) == 0.0
    ticket.finish(Ending.ANSWERED, 60.0)
    Ticket(ledger, 60.0, timed=False).finish(Ending.ABANDONED, 90.0)
    Ticket(ledger, 60.0, timed=False).finish(Ending.EXPIRED, 120.0)
    assert ledger.latency_ms(120.0) is None
    assert (ledger.samples, ledger.failures) == (0, 0)


def test_the_mean_is_plain_at_first_and_forgets_slowly_then() -> None:
    ledger = Ledger()
    for latency in (0.1, 0.3):
        Ticket(ledger, 0.0).finish(Ending.ANSWERED, latency)
    assert ledger.mean_ms == pytest.approx(200.0)
    for _ in range(100):
        Ticket(ledger, 0.0).finish(Ending.ANSWERED, 0.05)
    assert ledger.mean_ms == pytest.approx(50.0, rel=0.01)


def test_a_pod_that_is_not_warm_looks_as_much_fuller_as_it_counts_less() -> None:
    ledger = Ledger()
    ledger.restart(capacity=10)
    assert ledger.standing(0.0) == (0.1, None)
    ledger.weight = 0.1
    assert ledger.standing(0.0) == (1.0, None)


def test_a_pod_that_refused_counts_as_full_until_it_said_it_could_be_tried_again() -> None:
    ledger = Ledger()
    ledger.hear(0, 0, 8, 0.0)
    ledger.refused(until=0.5)
    assert ledger.standing(0.4) == (17 / 8, None)
    assert ledger.standing(0.5) == (1 / 8, None)


def test_news_is_expected_only_of_a_pod_that_has_told_nothing_lately() -> None:
    ledger = Ledger()
    assert ledger.expects_news(0.0)
    ledger.hear(1, 0, 8, 1.0)
    assert not ledger.expects_news(1.1)
    assert ledger.expects_news(1.3)


def test_the_rules_need_no_more_than_their_fields_wherever_these_are_kept() -> None:
    class Elsewhere:
        __slots__ = tuple(LedgerRules.__annotations__)

    class OtherLedger(Elsewhere, LedgerRules):
        __slots__ = ()

    ledgers = OtherLedger(), Ledger()
    ledgers[0].reset()
    for ledger in ledgers:
        ledger.restart(4)
        ledger.hear(2, 1, 4, 0.0)
        Ticket(ledger, 0.1).finish(Ending.ANSWERED, 0.2)
        Ticket(ledger, 0.2).finish(Ending.FAILED, 0.3)
        Ticket(ledger, 0.3)
    first, second = ([getattr(ledger, name) for name in LedgerRules.__annotations__] for ledger in ledgers)
    assert first == second
    assert all(type(value) in (int, float) for value in first)
    assert ledgers[0].standing(1.0) == ledgers[1].standing(1.0)
    assert not hasattr(ledgers[0], "__dict__")


def test_a_ticket_for_what_was_counted_before_counts_it_out_once_and_never_in() -> None:
    ledger = Ledger()
    Ticket(ledger, 1.0)
    ticket = Ticket.counted(ledger, 1.0)
    assert (ledger.in_flight, ledger.requests) == (1, 1)
    assert ticket.finish(Ending.ANSWERED, 1.5)
    assert not ticket.finish(Ending.FAILED, 2.0)
    assert (ledger.in_flight, ledger.requests, ledger.samples, ledger.errors) == (0, 1, 1, 0)
    assert ledger.latency_ms(1.5) == pytest.approx(500.0)
    assert ledger.silent(9.0) == 0.0


def test_a_time_constant_of_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="tau"):
        Ledger(tau=0.0)
