"""What is counted of a run while it goes on."""

from __future__ import annotations

from copydesk.loadtest import RequestFailedError, Sample
from copydesk.loadtest.generator import Flight
from copydesk.loadtest.tally import Counter, Tally, Watch

WATCH = Watch(begin=1.0, end=3.0, slo_s=0.5, late_s=0.005)
START = 100.0


def flight(due: float, answered: float | None = None, late: float = 0.0, *, bad: bool = False) -> Flight:
    planned, sent = START + due, START + due + late
    failure = RequestFailedError("http_500", "no") if bad else None
    sample = None if answered is None else Sample(planned, sent, planned + answered, failure)
    return Flight(planned, sent, sample)


def test_requests_count_once_their_fate_is_known_and_only_those_of_the_window() -> None:
    flights = [flight(0.5, 0.1), flight(1.0, 0.1), flight(1.2, 0.6), flight(1.4, 0.1, bad=True), flight(1.6)]
    counter = Counter(flights, START, WATCH)
    assert counter.count(START + 1.4) == Tally()
    assert counter.count(START + 1.6) == Tally(due=1)
    assert counter.count(START + 2.0) == Tally(due=3, missed=2)
    # Without an answer when its time is up: missed, whatever comes later.
    assert counter.count(START + 2.2) == Tally(due=4, missed=3)
    flights += [flight(2.9, 0.1, 0.006), flight(2.95, 0.1, 0.004), flight(3.0)]
    assert counter.count(START + 9.0) == Tally(due=6, missed=3, late=1)
    assert counter.count(START + 9.0) == Tally(due=6, missed=3, late=1)


def test_what_was_not_sent_yet_is_late() -> None:
    waiting = Flight(START + 1.0)
    assert Counter([waiting], START, WATCH).count(START + 2.0) == Tally(due=1, missed=1, late=1)


def test_the_tallies_of_processes_add_up() -> None:
    both = Tally.sum([Tally(due=3, missed=1, late=1), Tally(due=4, missed=2)])
    assert both == Tally(due=7, missed=3, late=1)
