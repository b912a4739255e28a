"""Which membership snapshot is believed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.routing import Held, Verdict, hear, judge

HELD = Held(epoch=100, generation=5, heard_at=50.0)


@pytest.mark.parametrize(
    ("held", "epoch", "generation", "now", "verdict"),
    [
        pytest.param(None, 1, 0, 0.0, Verdict.APPLY, id="the first is taken"),
        pytest.param(HELD, 100, 6, 51.0, Verdict.APPLY, id="a later generation"),
        pytest.param(HELD, 100, 5, 51.0, Verdict.CONFIRM, id="the same again"),
        pytest.param(HELD, 100, 4, 51.0, Verdict.IGNORE, id="a late one"),
        pytest.param(HELD, 100, 4, 500.0, Verdict.IGNORE, id="a late one after a silence"),
        pytest.param(HELD, 101, 0, 51.0, Verdict.APPLY, id="a new publisher"),
        pytest.param(HELD, 99, 9, 60.0, Verdict.IGNORE, id="an old publisher while the present one speaks"),
        pytest.param(HELD, 99, 9, 60.1, Verdict.APPLY, id="a lower epoch after ten seconds of silence"),
    ],
)
def test_the_newest_snapshot_wins(
    held: Held | None, epoch: int, generation: int, now: float, verdict: Verdict
) -> None:
    assert judge(held, epoch, generation, now) is verdict


def test_any_word_from_the_present_epoch_keeps_a_lower_one_out() -> None:
    held = hear(HELD, 100, 4, 59.0)
    assert held == Held(100, 5, 59.0)
    assert judge(held, 99, 9, 68.0) is Verdict.IGNORE


def test_a_refused_lower_epoch_does_not_keep_itself_out_for_ever() -> None:
    held: Held | None = HELD
    for second in range(51, 61):
        held = hear(held, 99, 1, float(second))
    assert held == HELD
    assert hear(held, 99, 1, 61.0) == Held(99, 1, 61.0)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), min_size=1))
def test_without_silences_any_order_of_arrival_ends_with_the_newest(arrivals: list[tuple[int, int]]) -> None:
    held: Held | None = None
    for epoch, generation in arrivals:
        held = hear(held, epoch, generation, now=0.0)
    assert held is not None
    assert (held.epoch, held.generation) == max(arrivals)
