"""Which sizes of steps are prepared for a GPU, and which of them a step gets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.inference.engine.native.cuda.buckets import (
    Bucket,
    Extent,
    buckets_for,
    fit,
    narrow_rows,
    reaches,
    sizes_of,
    wide_rows,
    widths,
)
from copydesk.inference.engine.native.layout import Run

ALL = 1 << 20
SERVED = Extent(slots=64, context=512, prefill_tokens=256, draft_tokens=192)

extents = st.builds(
    Extent,
    slots=st.integers(1, 200),
    context=st.integers(2, 3000),
    prefill_tokens=st.integers(1, 400),
    draft_tokens=st.integers(0, 300),
)


@st.composite
def possible_steps(draw: st.DrawFn, extent: Extent) -> list[Run]:
    """What a scheduler may ask for: one token of some, a piece of prompts for others, drafts in what is left."""
    slots = draw(st.lists(st.integers(0, extent.slots - 1), unique=True, min_size=1, max_size=12))
    decoding = draw(st.integers(0, len(slots)))
    prompts, drafts = extent.prefill_tokens, max(0, extent.draft_tokens - decoding)
    runs: list[Run] = []
    for place, slot in enumerate(slots):
        known = 1 if place < decoding else draw(st.integers(0, min(prompts, extent.context - 1)))
        if known == 0:
            continue
        prompts -= 0 if place < decoding else known
        drafted = draw(st.integers(0, min(drafts, extent.context - known)))
        drafts -= drafted
        length = known + drafted
        start = draw(st.integers(0, extent.context - length))
        samples = 1 + drafted if place < decoding or drafted else draw(st.integers(0, 1))
        runs.append(Run(slot, slot, start, [0] * length, samples))
    return runs


@given(st.data())
def test_every_step_that_there_can_be_fits_a_bucket_unless_it_is_huge(data: st.DataObject) -> None:
    extent = data.draw(extents)
    buckets = buckets_for(extent, ALL)
    runs = data.draw(possible_steps(extent))
    sizes = sizes_of(runs)
    index = fit(buckets, sizes)
    if index is None:
        assert sizes.cells * sizes.reach > 50_000, "what is left out is so large that its launches cost little"
        return
    bucket = buckets[index]
    assert bucket.holds(sizes)
    assert bucket.is_narrow == (sizes.width <= 1)
    alike = [other for other in buckets if other.is_narrow == bucket.is_narrow]
    assert all(other.cost >= bucket.cost for other in alike if other.holds(sizes))


@given(st.data())
def test_what_a_bucket_wastes_is_bounded(data: st.DataObject) -> None:
    extent = data.draw(extents)
    sizes = sizes_of(data.draw(possible_steps(extent)))
    buckets = buckets_for(extent, ALL)
    index = fit(buckets, sizes)
    if index is None or not sizes.tokens:
        return
    bucket = buckets[index]
    assert bucket.reach <= max(128, 2 * sizes.reach)
    if bucket.is_narrow:
        assert bucket.rows < max(2 * sizes.rows, sizes.rows + 8) or bucket.rows < sizes.rows + 16
        return
    assert bucket.tokens <= max(64, 2 * sizes.tokens, sizes.tokens + 128)
    assert bucket.rows <= max(8 * sizes.rows, sizes.rows + 64)
    assert bucket.width <= max(8, 4 * sizes.width)


def test_batches_are_finely_graded_while_every_run_is_a_token() -> None:
    assert narrow_rows(112) == [1, 2, 4, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112]
    assert narrow_rows(64)[-2:] == [56, 64]
    assert narrow_rows(50)[-2:] == [48, 50]
    assert narrow_rows(1) == [1]


def test_other_sizes_grow_by_factors_up_to_what_there_can_be() -> None:
    assert reaches(SERVED) == [128, 256, 512]
    assert reaches(Extent(4, 100, 8, 0)) == [100]
    assert widths(SERVED) == [8, 32, 64, 128, 256, 448]
    assert widths(Extent(4, 100, 1, 0)) == []
    assert wide_rows(64) == [1, 8, 32, 64]
    assert wide_rows(130) == [1, 8, 32, 64, 128, 130]


def test_the_number_of_buckets_is_what_the_default_allows() -> None:
    assert len(buckets_for(SERVED, ALL)) <= 256
    assert buckets_for(SERVED, 0) == ()


@pytest.mark.parametrize("most", [1, 5, 40, 100])
def test_fewer_buckets_are_those_that_are_used_most(most: int) -> None:
    kept = buckets_for(SERVED, most)
    assert len(kept) == most
    assert list(kept) == sorted(kept, key=lambda bucket: (not bucket.is_narrow, bucket.cost))
    everything = buckets_for(SERVED, ALL)
    narrow = [bucket for bucket in everything if bucket.is_narrow]
    assert set(kept) <= set(everything)
    assert set(narrow) <= set(kept) or set(kept) <= set(narrow)


def test_every_bucket_has_room_for_the_samples_of_what_fits() -> None:
    for bucket in buckets_for(SERVED, ALL):
        assert bucket.samples == min(bucket.tokens, SERVED.samples)


def test_an_idle_step_has_no_size() -> None:
    assert sizes_of([]) == Bucket(0, 0, 0, 0, 0)
