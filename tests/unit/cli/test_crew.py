"""The threads that do a command's blocking work."""

from __future__ import annotations

import threading

import pytest

from copydesk.cli.crew import Crew


def refuse() -> None:
    raise ValueError("no")


def test_results_come_in_the_order_of_the_work() -> None:
    with Crew(3) as crew:
        assert list(crew.map(lambda number: number * 2, range(50))) == [number * 2 for number in range(50)]


def test_an_error_is_raised_where_the_result_is_asked_for() -> None:
    with Crew(1) as crew:
        failed = crew.submit(refuse)
        assert crew.submit(lambda: "after it").result(10) == "after it"
        with pytest.raises(ValueError, match="no"):
            failed.result(10)


def test_the_end_waits_for_nobody() -> None:
    release, begun = threading.Event(), threading.Event()

    def wait() -> bool:
        begun.set()
        return release.wait(30)

    with Crew(1) as crew:
        underway = crew.submit(wait)
        waiting = crew.submit(lambda: True)
        assert begun.wait(10)
        assert waiting.cancel()
    assert not underway.done()
    release.set()
    assert underway.result(10)
    assert waiting.cancelled()
