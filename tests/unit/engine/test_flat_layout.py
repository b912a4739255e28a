"""The compiled library lays steps out as `layout.py` does, and makes of them the tensors that `step.py` makes."""

import ctypes
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from copydesk.inference.engine.compiled import load_library
from copydesk.inference.engine.native.compiled_types import DEVICE
from copydesk.inference.engine.native.config import read_config
from copydesk.inference.engine.native.devices import Device, RunnerDevice
from copydesk.inference.engine.native.flat_layout import FlatGroup, FlatLayout, LayoutRoom
from copydesk.inference.engine.native.layout import Group, Run, lay_out
from copydesk.inference.engine.native.runner import TorchRunner
from copydesk.inference.engine.native.torch_device import TorchDevice
from tests.unit.engine.reference import write_reference
from tests.unit.engine.steps import described

CONTEXT, SLOTS, VOCABULARY = 100, 40, 96
GUARD = -77


@st.composite
def some_runs(draw: st.DrawFn, *, slots: int = SLOTS) -> list[Run]:
    """In any order, of any length; many are single tokens or short drafts."""
    runs: list[Run] = []
    for slot in draw(st.lists(st.integers(0, slots - 1), unique=True, min_size=1, max_size=min(slots, 12))):
        length = draw(st.one_of(st.just(1), st.integers(1, 9), st.integers(1, 40)))
        start = draw(st.one_of(st.just(CONTEXT - length), st.integers(0, CONTEXT - length)))
        samples = draw(st.one_of(st.sampled_from((0, 1, length)), st.integers(0, length)))
        tokens = draw(st.lists(st.integers(0, VOCABULARY - 1), min_size=length, max_size=length))
        runs.append(Run(len(runs), slot, start, tokens, samples, samples > 0 and draw(st.booleans())))
    return runs


@given(st.lists(some_runs(), min_size=1, max_size=3))
def test_steps_are_laid_out_as_in_python(steps: list[list[Run]]) -> None:
    room = LayoutRoom(load_library(), CONTEXT)
    for runs in steps:
        arrays = described(runs, VOCABULARY)
        flat = room.lay_out(arrays.step)
        expected = lay_out(runs, CONTEXT)
        ordered = [(run, place) for run in expected.runs for place in range(run.start, run.end)]
        assert [runs[place] for place in flat.numbers[flat.order]] == list(expected.runs)
        assert flat.numbers[flat.tokens].tolist() == [token for run in expected.runs for token in run.tokens]
        assert flat.numbers[flat.positions].tolist() == [position for _, position in ordered]
        assert flat.numbers[flat.cache_rows].tolist() == [run.slot * CONTEXT + place for run, place in ordered]
        assert flat.numbers[flat.sampled].tolist() == expected.sampled
        assert [as_lists(flat, group) for group in flat.groups] == list(expected.groups)


def as_lists(flat: FlatLayout, group: FlatGroup) -> Group:
    def listed(place: slice | None) -> list[int] | None:
        return None if place is None else flat.numbers[place].tolist()

    return Group(
        first=group.first,
        last=group.last,
        width=group.width,
        reach=group.reach,
        slots=tuple(flat.numbers[group.slots].tolist()),
        contiguous=group.contiguous,
        positions=flat.numbers[group.positions].tolist(),
        cells=listed(group.cells),
        sources=listed(group.sources),
    )


@given(some_runs())
def test_samples_are_found_again_in_the_order_of_the_step(runs: list[Run]) -> None:
    arrays = described(runs, VOCABULARY)
    flat = LayoutRoom(load_library(), CONTEXT).lay_out(arrays.step)
    found = [
        (runs[place].slot, sample) for place in flat.numbers[flat.order] for sample in range(runs[place].samples)
    ]
    asked = [(run, sample) for run in runs for sample in range(run.samples)]
    assert [found[place] for place in flat.numbers[flat.places]] == [(run.slot, sample) for run, sample in asked]
    scored = [(run.slot, sample) for run, sample in asked if run.scores]
    assert [found[place] for place in flat.numbers[flat.scored]] == scored


@given(some_runs())
def test_nothing_is_written_outside_of_the_room(runs: list[Run]) -> None:
    function = load_library().cd_lay_out
    arrays = described(runs, VOCABULARY)
    needed = LayoutRoom(load_library(), CONTEXT).lay_out(arrays.step).numbers.size
    for room, written in ((needed, True), (needed - 1, False)):
        numbers = np.full(needed + 8, GUARD, np.int64)
        assert function(ctypes.byref(arrays.step), CONTEXT, numbers.ctypes.data, room) == needed
        assert (numbers[needed:] == GUARD).all()
        assert (numbers[:needed] != GUARD).all() == written
        assert written or (numbers == GUARD).all()


@pytest.fixture(scope="module", params=[torch.float32, torch.bfloat16])
def runners(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[TorchRunner]:
    """Two of the same, each with a cache of its own."""
    torch.set_num_threads(1)
    directory: Path = tmp_path_factory.mktemp("plain")
    write_reference("plain", directory)
    return [
        TorchRunner(
            directory,
            read_config(directory),
            slots=SLOTS,
            context=CONTEXT,
            dtype=request.param,
            device=torch.device("cpu"),
        )
        for _ in range(2)
    ]


Found = tuple[NDArray[np.int32], NDArray[np.float32]]


def computed(device: Device, runs: list[Run]) -> Found:
    """What the device chooses for runs without scores, and the scores of the others."""
    function, itself = device.device()
    arrays = described(runs, VOCABULARY)
    assert DEVICE(function)(itself, ctypes.pointer(arrays.step)) == 0, device.failure()
    greedy = np.array([not run.scores for run in runs for _ in range(run.samples)], bool)
    return arrays.chosen[greedy], arrays.scores


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(some_runs(slots=7), min_size=1, max_size=4))
def test_torch_computes_the_same_bits_from_both_layouts(
    runners: list[TorchRunner], steps: list[list[Run]]
) -> None:
    compiled = TorchDevice(load_library(), runners[0])
    python = RunnerDevice(runners[1], VOCABULARY)
    for runs in steps:
        (chosen, scores), (wanted, wanted_scores) = computed(compiled, runs), computed(python, runs)
        np.testing.assert_array_equal(chosen, wanted)
        np.testing.assert_array_equal(scores, wanted_scores)
        assert (chosen >= 0).all()


def test_what_breaks_in_a_step_is_kept_for_the_engine(runners: list[TorchRunner]) -> None:
    device = TorchDevice(load_library(), runners[0])
    function, itself = device.device()
    arrays = described([Run(0, 0, 0, [VOCABULARY], 1)], VOCABULARY)
    assert DEVICE(function)(itself, ctypes.pointer(arrays.step)) != 0
    assert isinstance(device.failure(), IndexError)
