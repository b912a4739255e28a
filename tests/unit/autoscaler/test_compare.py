"""Where a candidate differed from the live configuration, and what then happened."""

from __future__ import annotations

import random

import pytest

from copydesk.autoscaler.compare import Comparison, Verdict, compare
from copydesk.autoscaler.log_entry import Brief, Virtual
from copydesk.autoscaler.observer import Outcome

QUIET = Outcome(seconds=2.0, completed=100, p99_ms=300.0)
SLOW = Outcome(seconds=2.0, completed=100, p99_ms=1500.0)
SHED = Outcome(seconds=2.0, completed=100, p99_ms=400.0, shed=30, failed=1)


class Log:
    """Lines of a live configuration and of a candidate, two seconds apart."""

    def __init__(self) -> None:
        self.lines: list[Brief] = []
        self.time = 1000.0
        self.sequence = 0
        self.sizes = (4, 4)

    def turn(
        self, live: int, candidate: int, observed: Outcome = QUIET, *, work: float = 1.0, epoch: int = 7
    ) -> None:
        self.time += 2.0
        self.sequence += 1
        before, self.sizes = self.sizes, (live, candidate)
        for policy, size, replicas, virtual in (
            ("live", before[0], live, None),
            ("other", before[1], candidate, Virtual(ready=candidate, work=work)),
        ):
            self.lines.append(
                Brief(
                    time=self.time,
                    model="gec-en",
                    epoch=epoch,
                    sequence=self.sequence,
                    policy=policy,
                    size=size,
                    replicas=replicas,
                    observed=observed,
                    virtual=virtual,
                    slo_ms=1000.0,
                )
            )

    def compared(self) -> Comparison:
        (found,) = compare(self.lines)
        return found


def test_without_a_candidate_there_is_nothing_to_compare() -> None:
    log = Log()
    log.turn(3, 3)
    assert compare(log.lines[:1]) == ()
    assert compare(log.lines[1:]) == ()
    assert compare([]) == ()


def test_pods_that_differed_are_counted_in_pod_hours_and_moves() -> None:
    log = Log()
    for live, candidate in ((4, 4), (4, 6), (4, 6), (5, 6), (5, 5)):
        log.turn(live, candidate)
    found = log.compared()
    assert found.seconds == 8.0
    assert found.differed_seconds == 6.0
    assert found.live_pod_hours * 3600 == pytest.approx(2 * (4 + 4 + 4 + 5))
    assert found.candidate_pod_hours * 3600 == pytest.approx(2 * (4 + 6 + 6 + 6))
    assert (found.live_moves, found.candidate_moves) == (1, 2)
    (stretch,) = found.stretches
    assert (stretch.start, stretch.end) == (1004.0, 1010.0)
    assert (stretch.live, stretch.candidate, stretch.pods) == ((4, 5), (6, 6), 2)
    assert stretch.pod_hours * 3600 == pytest.approx(2 * (2 + 2 + 1))


def test_what_is_seen_after_a_decision_is_what_came_of_it() -> None:
    log = Log()
    log.turn(4, 6, SHED)  # of before both decided
    log.turn(4, 6, SLOW)
    log.turn(4, 6, QUIET)
    found = log.compared()
    (stretch,) = found.stretches
    assert (found.violation_seconds, found.p99_ms, found.shed) == (2.0, 1500.0, 0)
    assert (stretch.violation_seconds, stretch.p99_ms, stretch.shed) == (2.0, 1500.0, 0)


@pytest.mark.parametrize(
    ("candidate", "observed", "work", "verdict"),
    [
        (6, SLOW, 1.0, Verdict.MIGHT_HELP),
        (6, SHED, 1.0, Verdict.MIGHT_HELP),
        (6, QUIET, 1.0, Verdict.NO_USE),
        (2, QUIET, 1.9, Verdict.SAVED),
        (2, SLOW, 1.9, Verdict.SAVED),
        (2, QUIET, 2.1, Verdict.TOO_FEW),
    ],
)
def test_a_stretch_is_judged(candidate: int, observed: Outcome, work: float, verdict: Verdict) -> None:
    log = Log()
    for _ in range(3):
        log.turn(4, candidate, observed, work=work)
    (stretch,) = log.compared().stretches
    assert stretch.verdict is verdict
    assert stretch.short_seconds == (4.0 if work > candidate else 0.0)


def test_more_and_fewer_pods_are_two_stretches() -> None:
    log = Log()
    for candidate in (6, 6, 2, 2, 4, 6, 6):
        log.turn(4, candidate)
    assert [stretch.pods for stretch in log.compared().stretches] == [2, -2, 2]


@pytest.mark.parametrize("gap", ["hole", "term"])
def test_of_a_time_in_which_nobody_decided_nothing_is_said(gap: str) -> None:
    log = Log()
    log.turn(4, 6)
    log.turn(4, 6)
    log.time += 100.0 if gap == "hole" else 0.0
    log.turn(4, 6, epoch=7 if gap == "hole" else 8)
    log.turn(4, 6, epoch=7 if gap == "hole" else 8)
    found = log.compared()
    assert found.seconds == 4.0
    assert [stretch.end - stretch.start for stretch in found.stretches] == [2.0, 2.0]


def test_the_parts_add_up_to_the_whole() -> None:
    log, luck = Log(), random.Random(4)
    for _ in range(500):
        outcome = luck.choice((QUIET, SLOW, SHED))
        log.turn(luck.randint(3, 5), luck.randint(3, 5), outcome, work=luck.uniform(2, 6))
    found = log.compared()
    hours = sum(stretch.pod_hours for stretch in found.stretches)
    assert hours == pytest.approx(found.candidate_pod_hours - found.live_pod_hours)
    assert sum(stretch.end - stretch.start for stretch in found.stretches) == pytest.approx(found.differed_seconds)
    assert all(stretch.pods for stretch in found.stretches)
