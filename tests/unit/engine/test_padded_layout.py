"""A step in its bucket: C++ lays it out as the reference does, and padding is where no request sees it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from copydesk.inference.engine.compiled import load_library
from copydesk.inference.engine.native.cuda.buckets import Bucket, Extent, buckets_for, fit, sizes_of
from copydesk.inference.engine.native.cuda.padded_layout import CompiledPad, Pad, PythonPad, pad, places_of
from copydesk.inference.engine.native.layout import Run
from tests.unit.engine.steps import described

EXTENT = Extent(slots=12, context=150, prefill_tokens=40, draft_tokens=30)
BUCKETS = buckets_for(EXTENT, 1 << 20)
SPARE_ROW = EXTENT.slots * EXTENT.context
ROOM = max(places_of(bucket).size for bucket in BUCKETS)
GUARD = -777


@st.composite
def some_runs(draw: st.DrawFn) -> list[Run]:
    runs: list[Run] = []
    single = draw(st.booleans())
    for slot in draw(st.lists(st.integers(0, EXTENT.slots - 1), unique=True, max_size=EXTENT.slots)):
        length = 1 if single else draw(st.one_of(st.integers(1, 9), st.integers(1, 60)))
        start = draw(st.integers(0, EXTENT.context - length))
        samples = draw(st.sampled_from((0, 1, length)))
        tokens = draw(st.lists(st.integers(-40, 90), min_size=length, max_size=length))
        runs.append(Run(len(runs), slot, start, tokens, samples))
    return runs


def padded(way: Pad, runs: list[Run]) -> tuple[int | None, NDArray[np.int64]]:
    numbers = np.full(ROOM + 8, GUARD, np.int64)
    arrays = described(runs, 100)
    return way(arrays.step, numbers), numbers


@given(some_runs())
def test_steps_are_laid_out_as_in_python(runs: list[Run]) -> None:
    library = load_library()
    compiled = CompiledPad(library, BUCKETS, EXTENT.context, SPARE_ROW)
    index, numbers = padded(compiled, runs)
    wanted, reference = padded(PythonPad(BUCKETS, EXTENT.context, SPARE_ROW), runs)
    assert index == wanted == fit(BUCKETS, sizes_of(runs))
    np.testing.assert_array_equal(numbers, reference)
    assert (numbers[ROOM:] == GUARD).all()


@given(some_runs())
def test_what_is_padding_is_stored_where_nobody_looks(runs: list[Run]) -> None:
    index = fit(BUCKETS, sizes_of(runs))
    if index is None:
        return
    places = places_of(BUCKETS[index])
    numbers = pad(runs, BUCKETS[index], EXTENT.context, SPARE_ROW)
    rows = [run.slot * EXTENT.context + position for run in runs for position in range(run.start, run.end)]
    stored = numbers[places.cache_rows]
    assert sorted(stored[stored != SPARE_ROW]) == sorted(rows)
    tokens = [token for run in runs for token in run.tokens]
    assert sorted(numbers[places.tokens][stored != SPARE_ROW]) == sorted(tokens)


@given(some_runs())
def test_every_token_sees_its_own_slot_up_to_itself(runs: list[Run]) -> None:
    index = fit(BUCKETS, sizes_of(runs))
    if index is None:
        return
    bucket = BUCKETS[index]
    places = places_of(bucket)
    numbers = pad(runs, bucket, EXTENT.context, SPARE_ROW)
    tokens, positions = numbers[places.tokens], numbers[places.positions]
    cells = np.arange(bucket.tokens) if places.cells is None else numbers[places.cells]
    sources = np.arange(bucket.tokens) if places.sources is None else numbers[places.sources]
    flat = {int(row): place for place, row in enumerate(numbers[places.cache_rows])}
    samples: list[int] = []
    for run in runs:
        for offset, token in enumerate(run.tokens):
            place = flat[run.slot * EXTENT.context + run.start + offset]
            assert (tokens[place], positions[place]) == (token, run.start + offset)
            assert cells[place] // bucket.width == run.slot
            assert sources[cells[place]] == place, "what the cell finds is the token's"
            if offset >= len(run.tokens) - run.samples:
                samples.append(place)
    assert numbers[places.sampled][: len(samples)].tolist() == samples
    assert (positions[sources] < bucket.reach).all()


def test_a_step_that_fits_no_bucket_is_left_alone() -> None:
    few = (Bucket(2, 2, 1, 32, 2),)
    for way in (CompiledPad(load_library(), few, 150, 300), PythonPad(few, 150, 300)):
        for run in (Run(0, 2, 0, [1], 1), Run(0, 0, 32, [1], 1), Run(0, 0, 0, [1, 1], 1)):
            index, numbers = padded(way, [run])
            assert index is None
            assert (numbers == GUARD).all()


@pytest.mark.parametrize("way", [CompiledPad, PythonPad])
def test_without_buckets_nothing_fits(way: type[Pad]) -> None:
    pad_nothing = CompiledPad(load_library(), (), 150, 0) if way is CompiledPad else PythonPad((), 150, 0)
    assert padded(pad_nothing, [Run(0, 0, 0, [1], 1)])[0] is None
