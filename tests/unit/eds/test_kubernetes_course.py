"""What comes after a list or a watch has ended."""

from __future__ import annotations

import pytest

from copydesk.eds.kubernetes.course import LONGEST_PAUSE, LONGEST_RETRY_AFTER, Ended, next_course
from copydesk.eds.kubernetes.reason import Reason, SilentError
from copydesk.kube.trouble import ExpiredError, KubernetesError, NonsenseError, RefusedError, UnreachableError


def test_a_watch_that_the_server_ended_as_asked_goes_on_at_once_where_it_was() -> None:
    course = next_course(Ended(None, words=3, sound=True), attempt=2, share=1.0)
    assert (course.relist, course.pause, course.failed, course.attempt) == (None, 0.0, False, 0)


def test_a_watch_that_was_cut_off_after_it_had_spoken_goes_on_where_it_was() -> None:
    course = next_course(Ended(UnreachableError("reset"), words=1, sound=True), attempt=0, share=1.0)
    assert (course.relist, course.pause, course.failed) == (None, 0.0, False)


def test_a_watch_that_ended_without_a_word_is_not_believed() -> None:
    assert next_course(Ended(None, words=0, sound=True), attempt=0, share=1.0).relist is Reason.SILENT
    assert next_course(Ended(SilentError(), words=7, sound=True), attempt=0, share=1.0).relist is Reason.SILENT


@pytest.mark.parametrize(
    ("error", "reason", "failed"),
    [
        (ExpiredError("gone"), Reason.EXPIRED, False),
        (NonsenseError("html"), Reason.NONSENSE, True),
        (RefusedError(500, "x"), Reason.REFUSED, True),
        (UnreachableError("refused"), Reason.UNREACHABLE, True),
        (ZeroDivisionError(), Reason.FAULT, True),
    ],
)
def test_whatever_else_happens_all_is_listed_again_after_a_pause(
    error: Exception, reason: Reason, failed: bool
) -> None:
    course = next_course(Ended(error), attempt=0, share=0.5)
    assert (course.relist, course.failed, course.attempt) == (reason, failed, 1)
    assert course.pause > 0


@pytest.mark.parametrize(
    "ended", [Ended(None), Ended(None, words=1), Ended(ExpiredError("gone")), Ended(UnreachableError("refused"))]
)
def test_pauses_grow_to_a_limit_while_nothing_lasts(ended: Ended) -> None:
    pauses, attempt = [], 0
    for _ in range(40):
        course = next_course(ended, attempt, share=1.0)
        pauses.append(course.pause)
        attempt = course.attempt
    assert pauses == sorted(pauses)
    assert 0 < pauses[0] < 1
    assert pauses[-1] == LONGEST_PAUSE


def test_pauses_are_spread() -> None:
    ended = Ended(UnreachableError("refused"))
    assert next_course(ended, 5, share=0.0).pause < next_course(ended, 5, share=1.0).pause


def test_a_server_that_asks_to_be_left_alone_is_within_reason() -> None:
    asked: list[KubernetesError] = [RefusedError(429, "busy", 7.0), RefusedError(429, "busy", 1e9)]
    pauses = [next_course(Ended(error), attempt=0, share=0.0).pause for error in asked]
    assert pauses == [7.0, LONGEST_RETRY_AFTER]
