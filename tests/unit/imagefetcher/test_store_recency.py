"""Which sectors make room for others."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from copydesk.imagefetcher.store.recency import Recency

SIZES = st.lists(st.integers(1, 100), max_size=20)


def of(sizes: list[int]) -> Recency:
    return Recency((f"sector {number}", size) for number, size in enumerate(sizes))


@given(SIZES, st.integers(1, 500), st.integers(1, 100))
def test_after_evicting_the_new_one_fits_and_no_more_was_evicted_than_needed(
    sizes: list[int], limit: int, incoming: int
) -> None:
    recency = of(sizes)
    victims = recency.victims(limit, incoming)
    if incoming > limit:
        assert victims is None
        return
    assert victims is not None
    assert victims == list(recency)[: len(victims)]
    before_last = recency.total - sum(dict(recency.items())[victim] for victim in victims[:-1])
    assert not victims or before_last + incoming > limit
    for victim in victims:
        recency.remove(victim)
    assert recency.total + incoming <= limit


@given(SIZES, st.lists(st.integers(0, 19), max_size=30))
def test_what_was_touched_last_goes_last(sizes: list[int], touches: list[int]) -> None:
    recency = of(sizes)
    for number in touches:
        recency.touch(f"sector {number}")
    order = list(recency)
    touched = [f"sector {number}" for number in dict.fromkeys(reversed(touches)) if number < len(sizes)]
    assert order[len(order) - len(touched) :] == touched[::-1]


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(1, 9), st.booleans())))
def test_the_total_is_always_the_sum_of_what_is_held(steps: list[tuple[str, int, bool]]) -> None:
    recency = Recency()
    model: dict[str, int] = {}
    for name, size, adds in steps:
        if adds:
            recency.add(name, size)
            model[name] = size
        else:
            recency.remove(name)
            model.pop(name, None)
        assert recency.total == sum(model.values())
        assert dict(recency.items()) == model
