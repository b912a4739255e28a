"""Which version of a model a request is drawn for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.routing import Draw, Split

keys = st.binary(min_size=1, max_size=40)
shares = st.floats(min_value=0.0, max_value=1.0)


@given(keys, shares, shares, shares)
def test_who_was_in_stays_in_as_the_share_grows(key: bytes, one: float, other: float, copied: float) -> None:
    low, high = sorted((one, other))
    if Split.of("r", low, copied).draw(key) is Draw.CANDIDATE:
        assert Split.of("r", high, copied).draw(key) is Draw.CANDIDATE


@given(keys, shares)
def test_nothing_and_everything_are_drawn_exactly(key: bytes, copied: float) -> None:
    assert Split.of("r", 1.0, copied).draw(key) is Draw.CANDIDATE
    assert Split.of("r", 0.0, 0.0).draw(key) is Draw.BASELINE
    assert Split.of("r", 0.0, 1.0).draw(key) is Draw.COPIED


@pytest.mark.parametrize("share", [0.01, 0.05, 0.25, 0.5, 0.9])
@pytest.mark.parametrize("form", ["req-{:012x}", "{}", "person-{}@example.org"])
def test_the_share_is_met_even_where_keys_are_alike(share: float, form: str) -> None:
    split = Split.of("20261130-abc", share, 0.3)
    drawn = [split.draw(form.format(number).encode()) for number in range(20_000)]
    spread = 5 * (share * (1 - share) / len(drawn)) ** 0.5
    assert abs(drawn.count(Draw.CANDIDATE) / len(drawn) - share) < spread
    rest = len(drawn) - drawn.count(Draw.CANDIDATE)
    assert abs(drawn.count(Draw.COPIED) / rest - 0.3) < 5 * (0.3 * 0.7 / rest) ** 0.5


def test_another_rollout_draws_others_first() -> None:
    one, other = Split.of("one", 0.5, 0.0), Split.of("other", 0.5, 0.0)
    differ = sum(one.draw(str(key).encode()) != other.draw(str(key).encode()) for key in range(2_000))
    assert 800 < differ < 1_200


def test_the_hash_is_the_published_one() -> None:
    # FNV-1a of "a" and "foobar", by its authors' test vectors
    assert Split.of("", 0, 0).seed == (0xCBF29CE484222325 * 0x100000001B3) & (1 << 64) - 1
    from copydesk.routing.split import _OFFSET, _absorb

    assert _absorb(_OFFSET, b"a") == 0xAF63DC4C8601EC8C
    assert _absorb(_OFFSET, b"foobar") == 0x85944171F73967E8
