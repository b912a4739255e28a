"""What the bus decides without a server."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.common.bus import LONGEST_DELAY_SECONDS, Bus, BusUrlError, reconnect_delay

chances = st.floats(0, 1, exclude_max=True)


@given(st.integers(0, 10_000), chances)
def test_a_delay_is_positive_and_bounded_however_often_it_failed(attempt: int, chance: float) -> None:
    assert 0 < reconnect_delay(attempt, chance) <= LONGEST_DELAY_SECONDS


@given(st.integers(0, 100), chances)
def test_later_attempts_wait_no_less(attempt: int, chance: float) -> None:
    assert reconnect_delay(attempt, chance) <= reconnect_delay(attempt + 1, chance)


@given(st.integers(0, 100))
def test_chance_spreads_half_of_the_delay(attempt: int) -> None:
    assert reconnect_delay(attempt, 0.0) * 1.9 < reconnect_delay(attempt, 0.999)


@pytest.mark.parametrize(
    "url", ["", "localhost", "http://x:1", "nats://", "nats://x:port", "nats://x:1,", "nats://x:99999"]
)
async def test_an_address_that_cannot_be_one_is_refused_at_once(url: str) -> None:
    with pytest.raises(BusUrlError) as caught:
        await Bus.connect(url, name="test")
    assert caught.value.url == url.rpartition(",")[2]


async def test_a_password_in_an_address_is_not_shown() -> None:
    with pytest.raises(BusUrlError) as caught:
        await Bus.connect("nats://user:hunter2@x:port", name="test")
    assert "hunter2" not in str(caught.value)
