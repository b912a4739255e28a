"""The pulse of a generator process: what stands still is felt, what is merely late is not."""

from __future__ import annotations

from copydesk.loadtest.pulse import STALL_S, Pulse, Stall, merged, standing_still
from copydesk.loadtest.wire import Outcomes, frame, read_told


def test_a_beat_that_comes_much_too_late_is_a_stall_from_when_it_was_due() -> None:
    pulse = Pulse()
    pulse.feel(1.0, 1.0 + STALL_S / 2)
    pulse.feel(2.0, 2.5)
    assert pulse.stalls == [Stall(2.0, 0.5)]


def test_a_stall_concerns_what_was_under_way_in_it() -> None:
    stalls = [Stall(2.0, 0.5)]
    assert standing_still(1.0, 2.1, stalls)
    assert standing_still(2.4, 3.0, stalls)
    assert standing_still(2.1, 2.2, stalls)
    assert not standing_still(1.0, 2.0, stalls)
    assert not standing_still(2.5, 3.0, stalls)


def test_what_several_processes_felt_at_once_is_one_stall() -> None:
    felt = [Stall(5.0, 0.5), Stall(1.0, 0.5), Stall(1.25, 0.5), Stall(1.3, 0.1)]
    assert merged(felt) == (Stall(1.0, 0.75), Stall(5.0, 0.5))
    assert merged([]) == ()


def test_stalls_are_told_with_what_became_of_the_requests() -> None:
    told = read_told(frame(Outcomes.of([], 0, [Stall(2.0, 0.5)]))[4:])
    assert isinstance(told, Outcomes)
    assert told.stalls == (Stall(2.0, 0.5),)
