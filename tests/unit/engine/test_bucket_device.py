"""What a GPU would run, run on a processor: padded, put off, with tokens that the host does not know yet."""

import ctypes
import dataclasses
import functools
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from copydesk.inference.engine import Engine, Finish, GeneratedTokens, GenerateTokens, Sampling
from copydesk.inference.engine.compiled import load_library
from copydesk.inference.engine.native import NativeOptions, Precision, open_engine
from copydesk.inference.engine.native.compiled_types import BEGIN, FINISH
from copydesk.inference.engine.native.config import read_config
from copydesk.inference.engine.native.cuda.backend import ProcessorBackend
from copydesk.inference.engine.native.cuda.bucket_device import BucketDevice
from copydesk.inference.engine.native.cuda.buckets import Bucket, Extent, buckets_for
from copydesk.inference.engine.native.errors import InvalidOptionError
from copydesk.inference.engine.native.layout import Run
from copydesk.inference.engine.native.runner import TorchRunner
from copydesk.inference.engine.native.torch_device import TorchDevice
from tests.unit.engine.reference import imperfect, random_requests, serve_at_random, write_reference
from tests.unit.engine.steps import Described, described

VOCABULARY, CONTEXT, SLOTS = 96, 64, 6
EXTENT = Extent(SLOTS, CONTEXT, prefill_tokens=20, draft_tokens=24)
ANY = Extent(SLOTS, CONTEXT, prefill_tokens=72, draft_tokens=72)
"""For steps that no scheduler plans: everybody drafts at once."""

ALL = buckets_for(ANY, 1 << 20)


@pytest.fixture(scope="module", params=["plain", "wide-heads"])
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    path: Path = tmp_path_factory.mktemp(request.param)
    write_reference(request.param, path)
    return path


@functools.cache
def opened(directory: Path, *, spare: bool) -> TorchRunner:
    """Caches need no cleaning: what is left in a slot is beyond what the next one sees."""
    return TorchRunner(
        directory,
        read_config(directory),
        slots=SLOTS,
        context=CONTEXT,
        dtype=torch.float32,
        device=torch.device("cpu"),
        spare=spare,
    )


@functools.cache
def padding(directory: Path, buckets: tuple[Bucket, ...] = ALL) -> BucketDevice:
    """At a pace that changes all the time: from as late as allowed to at once."""
    runner = opened(directory, spare=True)
    rng = random.Random(0)
    backend = ProcessorBackend(lambda: rng.choice((0, 0, 0, 1, 9)))
    return BucketDevice(load_library(), runner, backend, ANY, buckets)


def begun_alike(directory: Path) -> None:
    """Give both runners' slots the same history: other tests and failed steps leave theirs in one of them."""
    with torch.inference_mode():
        for spare in (False, True):
            cache = opened(directory, spare=spare)._cache
            for rows in (*cache.keys, *cache.values):
                rows.zero_()


@st.composite
def some_runs(draw: st.DrawFn, single: bool) -> list[Run]:
    """Positions before a run are whatever the slot holds, the same for both devices if it is the same history."""
    runs: list[Run] = []
    for slot in draw(st.lists(st.integers(0, SLOTS - 1), unique=True, min_size=1, max_size=SLOTS)):
        length = 1 if single else draw(st.integers(1, 12))
        start = draw(st.integers(0, CONTEXT - length))
        tokens = draw(st.lists(st.integers(0, VOCABULARY - 1), min_size=length, max_size=length))
        runs.append(Run(slot, slot, start, tokens, draw(st.sampled_from((0, 1, length))), draw(st.booleans())))
    return runs


def greedy_and_scores(arrays: Described, runs: Sequence[Run]) -> tuple[list[int], Any]:
    greedy = np.array([not run.scores for run in runs for _ in range(run.samples)], bool)
    return arrays.chosen[greedy].tolist(), arrays.scores


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), few=st.booleans())
def test_padded_steps_find_what_plain_ones_find(directory: Path, data: st.DataObject, few: bool) -> None:
    begun_alike(directory)
    plain = TorchDevice(load_library(), opened(directory, spare=False))
    padded = padding(directory, ALL[:3] if few else ALL)
    for single in data.draw(st.lists(st.booleans(), min_size=1, max_size=4)):
        runs = data.draw(some_runs(single))
        mine, theirs = described(runs, VOCABULARY), described(runs, VOCABULARY)
        padded.compute(mine.step)
        plain.compute(theirs.step)
        (chosen, scores), (wanted, wanted_scores) = (greedy_and_scores(arrays, runs) for arrays in (mine, theirs))
        assert chosen == wanted
        np.testing.assert_allclose(scores, wanted_scores, rtol=1e-4, atol=1e-4)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), few=st.booleans())
def test_a_step_may_begin_with_tokens_that_are_not_known_yet(
    directory: Path, data: st.DataObject, few: bool
) -> None:
    """Two steps under way all the time, each going on where the last one ends, against one at a time."""
    begun_alike(directory)
    plain = TorchDevice(load_library(), opened(directory, spare=False))
    ahead = padding(directory, ALL[:2] if few else ALL)
    first = [Run(r.request_id, r.slot, min(r.start, 20), r.tokens, 1) for r in data.draw(some_runs(False))]
    steps = 6
    known = described(first, VOCABULARY)
    plain.compute(known.step)
    wanted = [known.chosen.tolist()]
    runs = first
    for _ in range(steps):
        runs = [
            Run(run.request_id, run.slot, run.end, [token], 1) for run, token in zip(runs, wanted[-1], strict=True)
        ]
        known = described(runs, VOCABULARY)
        plain.compute(known.step)
        wanted.append(known.chosen.tolist())

    under_way = [described(first, VOCABULARY)]
    ahead.begin(under_way[0].step)
    runs = first
    for step in range(steps):
        # Others may have ended meanwhile: those that go on are any of them, in any order.
        runs = [Run(run.request_id, run.slot, run.end, [-(1 + i)], 1) for i, run in enumerate(runs)]
        under_way.append(described(runs, VOCABULARY))
        ahead.begin(under_way[-1].step)
        ahead.finish()
        assert under_way[step].chosen.tolist() == wanted[step]
    ahead.finish()
    assert under_way[-1].chosen.tolist() == wanted[-1]


def test_a_sample_is_found_by_its_place_in_the_step_before(directory: Path) -> None:
    plain = TorchDevice(load_library(), opened(directory, spare=False))
    ahead = padding(directory)
    first = [Run(0, 4, 0, [7, 8, 9], 3), Run(1, 1, 0, [3], 1), Run(2, 3, 0, [5, 6], 1)]
    known = described(first, VOCABULARY)
    plain.compute(known.step)
    second = [Run(2, 3, 2, [int(known.chosen[4])], 1), Run(0, 4, 3, [int(known.chosen[2])], 1)]
    wanted = described(second, VOCABULARY)
    plain.compute(wanted.step)
    begun = described(first, VOCABULARY)
    after = described([Run(2, 3, 2, [-5], 1), Run(0, 4, 3, [-3], 1)], VOCABULARY)
    ahead.begin(begun.step)
    ahead.begin(after.step)
    ahead.finish()
    ahead.finish()
    assert begun.chosen.tolist() == known.chosen.tolist()
    assert after.chosen.tolist() == wanted.chosen.tolist()


def test_no_padding_reaches_the_slot_of_a_request(directory: Path) -> None:
    device = padding(directory)
    runner = opened(directory, spare=True)
    caches = [*runner._cache.keys, *runner._cache.values]
    for runs in ([Run(0, 2, 5, [1], 1)], [Run(0, 2, 5, [1, 2, 3], 3), Run(1, 0, 7, [4], 1)]):
        before = [cache.clone() for cache in caches]
        device.compute(described(runs, VOCABULARY).step)
        written = {(run.slot, position) for run in runs for position in range(run.start, run.end)}
        for old, new in zip(before, caches, strict=True):
            changed = (old != new).any(-1).any(1).nonzero().tolist()
            assert {(slot, position) for slot, position in changed if slot < SLOTS} <= written


def open_float32(directory: Path, **changes: Any) -> Engine:
    options = NativeOptions(
        precision=Precision.FLOAT32,
        slots=SLOTS,
        context=CONTEXT,
        queue=1000,
        prefill_tokens=EXTENT.prefill_tokens,
        draft_tokens=EXTENT.draft_tokens,
        threads=1,
    )
    return open_engine(directory, dataclasses.replace(options, **changes))


def mixed_requests(directory: Path, rng: random.Random) -> list[GenerateTokens]:
    """Some have a source like their answer, some draw their tokens, some have neither."""
    requests = random_requests(rng, 14, longest=40, vocabulary=VOCABULARY)
    plain = serve_at_random(open_float32(directory, draft_tokens=0), requests, random.Random(0)).answers
    for index in range(0, len(requests), 2):
        source = imperfect(rng, plain[index].tokens, VOCABULARY)
        requests[index] = msgspec.structs.replace(requests[index], source=source)
    for index in range(0, len(requests), 5):
        drawn = Sampling(temperature=0.8, seed=index, presence_penalty=0.5)
        requests[index] = msgspec.structs.replace(requests[index], sampling=drawn)
    return requests


@pytest.mark.parametrize(
    "changes",
    [
        {"graphs": 256},
        {"graphs": 256, "draft_tokens": 0},
        {"graphs": 4},
        {"graphs": 256, "compiled_inputs": False},
        {"graphs": 256, "asynchronous": False, "slots": 3},
    ],
    ids=["drafts", "no drafts", "few graphs", "inputs in Python", "few slots"],
)
@settings(max_examples=2, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
def test_whatever_comes_and_goes_gets_the_same_answers(
    directory: Path, changes: dict[str, Any], seed: int
) -> None:
    rng = random.Random(seed)
    requests = mixed_requests(directory, rng)
    wanted = serve_at_random(open_float32(directory), requests, random.Random(1)).answers
    delivered = serve_at_random(open_float32(directory, **changes), requests, rng, cancel=0.2)
    assert delivered.calls.total() == len(delivered.calls) == len(requests)
    for index, answer in delivered.answers.items():
        if answer.finish is Finish.CANCELLED:
            assert index in delivered.cancelled
        else:
            assert_the_same(answer, wanted[index], drawn=requests[index].sampling.temperature > 0)


def assert_the_same(found: GeneratedTokens, wanted: GeneratedTokens, *, drawn: bool) -> None:
    """Sums of another order round otherwise: a number drawn between two tokens may fall to the one beside."""
    first = next((pair for pair in zip(found.tokens, wanted.tokens, strict=False) if pair[0] != pair[1]), None)
    if drawn and first is not None:
        assert abs(first[0] - first[1]) == 1
        return
    assert (found.tokens, found.finish) == (wanted.tokens, wanted.finish)


def test_what_fails_is_kept_for_the_engine(directory: Path) -> None:
    device = BucketDevice(load_library(), opened(directory, spare=True), ProcessorBackend(), ANY, ALL[:2])
    begin, finish = device.overlap()
    arrays = described([Run(0, 0, 0, [VOCABULARY], 1)], VOCABULARY)
    assert BEGIN(begin)(0, ctypes.pointer(arrays.step)) == 0, "it is put off, as on a GPU"
    assert FINISH(finish)(0) != 0
    assert isinstance(device.failure(), IndexError)


@pytest.mark.parametrize("message", ["CUDA out of memory. Tried to allocate\nmore", "CUDA error: out of memory"])
def test_graphs_that_there_is_no_memory_for_are_a_matter_of_options(
    directory: Path, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def prepare(self: ProcessorBackend, work: Any) -> Any:
        raise RuntimeError(message)

    monkeypatch.setattr(ProcessorBackend, "prepare", prepare)
    options = NativeOptions(
        precision=Precision.FLOAT32, slots=SLOTS, context=CONTEXT, prefill_tokens=20, draft_tokens=24, graphs=9
    )
    with pytest.raises(InvalidOptionError, match=r"graphs is 9; expected fewer, or .*out of memory") as failure:
        open_engine(directory, options)
    assert "more" not in str(failure.value)
    monkeypatch.setattr(ProcessorBackend, "prepare", lambda self, work: [][1])
    with pytest.raises(IndexError):
        open_engine(directory, options)
