"""The clock of the autoscaler: no step of the wall clock moves it."""

from __future__ import annotations

from copydesk.autoscaler.clock import SteadyClock


def test_a_step_of_the_wall_clock_moves_nothing() -> None:
    wall, monotonic = [1_764_500_000.0], [50.0]
    clock = SteadyClock(lambda: wall[0], lambda: monotonic[0])
    assert clock.now() == 1_764_500_000.0
    wall[0] -= 300.0
    monotonic[0] += 2.0
    assert clock.now() == 1_764_500_002.0
