"""The 8-bit decoder: close to float32, and the same bit by bit in any company."""

import itertools
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
from numpy.typing import NDArray

from copydesk.common.rpc.frames import Priority
from copydesk.inference.engine import Engine, GeneratedTokens, GenerateTokens, Sampling
from copydesk.inference.engine.compiled import load_library
from copydesk.inference.engine.native import (
    CompiledEngine,
    Core,
    InvalidOptionError,
    MissingTensorError,
    NativeOptions,
    Precision,
    UnreadableModelError,
    UnsupportedModelError,
    open_engine,
)
from copydesk.inference.engine.native.config import read_config
from copydesk.inference.engine.native.int8.decoder import KERNELS_VARIABLE, Int8Decoder, best_kernels
from copydesk.inference.engine.native.layout import Run
from copydesk.inference.engine.native.runner import TorchRunner
from tests.fixtures.tiny_model import write_tiny_model
from tests.unit.engine.reference import SHAPES, imperfect, write_reference

KERNELS = [name for name in ("amx", "avx512", "avx2", "portable") if best_kernels(load_library(), name)]
VOCABULARY = 96
Scores = NDArray[np.float32]


def open_decoder(
    directory: Path, *, slots: int = 4, context: int = 128, threads: int = 1, **more: Any
) -> Int8Decoder:
    config = read_config(directory)
    return Int8Decoder(load_library(), directory, config, slots=slots, context=context, threads=threads, **more)


def random_tokens(rng: random.Random, count: int) -> list[int]:
    return [rng.randrange(VOCABULARY) for _ in range(count)]


def scores_of(decoder: Int8Decoder, tokens: Sequence[int], slot: int = 0) -> Scores:
    """The scores after each of the tokens, all fed at once."""
    return decoder.run([Run(0, slot, 0, tokens, len(tokens), True)]).scores[slot]


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("shape", sorted(SHAPES))
def test_scores_are_close_to_those_of_float32(shape: str, kernels: str, tmp_path: Path) -> None:
    write_reference(shape, tmp_path)
    context = min(64, read_config(tmp_path).positions)
    tokens = random_tokens(random.Random(1), 50)
    ours = scores_of(open_decoder(tmp_path, context=context, kernels=kernels), tokens)
    torch.set_num_threads(1)
    runner = TorchRunner(
        tmp_path, read_config(tmp_path), slots=1, context=context, dtype=torch.float32, device=torch.device("cpu")
    )
    theirs = runner.logits([Run(0, 0, 0, tokens, len(tokens))])[0].numpy()
    cosine = (ours * theirs).sum(-1) / np.linalg.norm(ours, axis=-1) / np.linalg.norm(theirs, axis=-1)
    assert cosine.min() > 0.9, cosine
    assert np.median(cosine) > 0.98, cosine


@pytest.fixture(scope="module", params=["plain", "qwen2", "wide-heads"])
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp(request.param)
    write_reference(request.param, path)
    return path


def cut(rng: random.Random, length: int) -> list[tuple[int, int]]:
    """Pieces of a sequence, one after the other."""
    borders = sorted({0, length, *(rng.randrange(length) for _ in range(rng.randrange(6)))})
    return list(itertools.pairwise(borders))


@pytest.mark.parametrize("kernels", KERNELS)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), threads=st.integers(1, 3))
def test_a_row_is_the_same_bit_by_bit_in_any_company(
    directory: Path, kernels: str, seed: int, threads: int
) -> None:
    rng = random.Random(seed)
    texts = [random_tokens(rng, rng.randrange(2, 60)) for _ in range(4)]
    alone = open_decoder(directory, slots=1, kernels=kernels)
    wanted = [scores_of(alone, text) for text in texts]
    together = open_decoder(directory, slots=6, kernels=kernels, threads=threads)
    slots = rng.sample(range(6), 4)
    pieces = [cut(rng, len(text)) for text in texts]
    while any(pieces):
        going = [index for index in range(4) if pieces[index] and rng.random() < 0.7]
        runs = []
        for index in going:
            first, last = pieces[index].pop(0)
            runs.append(Run(index, slots[index], first, texts[index][first:last], last - first, True))
        found = together.run(runs).scores if runs else {}
        for run in runs:
            np.testing.assert_array_equal(found[run.slot], wanted[run.request_id][run.start : run.end])


@pytest.mark.parametrize("kernels", KERNELS)
def test_refuted_drafts_and_former_tenants_leave_no_trace(directory: Path, kernels: str) -> None:
    rng = random.Random(3)
    text = random_tokens(rng, 40)
    decoder = open_decoder(directory, kernels=kernels)
    wanted = scores_of(decoder, text)
    scores_of(decoder, random_tokens(rng, 90), slot=2)
    decoder.run([Run(0, 2, 0, text[:20] + random_tokens(rng, 30), 0)])
    rest = decoder.run([Run(0, 2, 20, text[20:], 20, True)]).scores[2]
    np.testing.assert_array_equal(rest, wanted[20:])


def anonymous_mb() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("RssAnon:")[2].split()[0]) / 1000


def test_no_more_of_the_cache_stays_in_memory_than_was_said_and_nothing_that_is_needed_goes(
    tmp_path: Path,
) -> None:
    """Each slot has a long tenant, whom a short one follows at once: it needs little of what the long one left."""
    context, slots = 4096, 6
    write_tiny_model(tmp_path, context=context, hidden=256, heads=4, kv_heads=4)
    texts = [[3 + token for token in random_tokens(random.Random(slot), 60)] for slot in range(slots)]
    free = open_decoder(tmp_path, context=context, slots=1)
    wanted = [scores_of(free, text)[40:] for text in texts]
    decoder = open_decoder(tmp_path, context=context, slots=slots, cache_tokens=context)
    long = [3 + token for token in random_tokens(random.Random(9), context)]
    before = anonymous_mb()
    decoder.run([Run(0, 0, 0, long, 1)])
    with_one = anonymous_mb() - before
    for slot, text in enumerate(texts):
        decoder.run([Run(0, slot, 0, long, 1)])
        decoder.run([Run(0, slot, 0, text[:40], 0)])
    assert anonymous_mb() - before < 1.5 * with_one
    for slot, text in enumerate(texts):
        found = decoder.run([Run(0, slot, 40, text[40:], 20, True)]).scores[slot]
        np.testing.assert_array_equal(found, wanted[slot])


@pytest.mark.parametrize("kernels", KERNELS)
def test_the_likeliest_token_is_the_first_of_the_largest_scores(directory: Path, kernels: str) -> None:
    text = random_tokens(random.Random(5), 45)
    decoder = open_decoder(directory, kernels=kernels, threads=2)
    chosen = decoder.run([Run(0, 0, 0, text, 45)]).tokens[0]
    assert chosen == scores_of(decoder, text, slot=1).argmax(-1).tolist()


def test_scored_and_greedy_runs_share_a_step(directory: Path) -> None:
    rng = random.Random(6)
    texts = [random_tokens(rng, 9) for _ in range(3)]
    decoder = open_decoder(directory)
    wanted = [scores_of(decoder, text) for text in texts]
    result = decoder.run([Run(i, i, 0, texts[i], 4, i == 1) for i in range(3)])
    assert set(result.scores) == {1}
    np.testing.assert_array_equal(result.scores[1], wanted[1][-4:])
    for index in (0, 2):
        assert result.tokens[index] == wanted[index][-4:].argmax(-1).tolist()


def test_thousands_of_positions_are_the_same_in_one_step_and_in_many(tmp_path: Path) -> None:
    write_tiny_model(tmp_path, context=4096)
    decoder = open_decoder(tmp_path, context=4096, slots=2, threads=2)
    text = [3 + token for token in random_tokens(random.Random(7), 3000)]
    decoder.run([Run(0, 0, 0, text[:2990], 0)])
    whole = decoder.run([Run(0, 0, 2990, text[2990:], 10, True)]).scores[0]
    for start in range(0, 2990, 130):
        decoder.run([Run(0, 1, start, text[start : min(start + 130, 2990)], 0)])
    last = [decoder.run([Run(0, 1, 2990 + i, [text[2990 + i]], 1, True)]).scores[1][0] for i in range(10)]
    np.testing.assert_array_equal(np.stack(last), whole)


def serve(engine: Engine, requests: Sequence[GenerateTokens], at_once: int) -> list[GeneratedTokens]:
    answers: dict[int, GeneratedTokens] = {}
    for first in range(0, len(requests), at_once):
        for index in range(first, min(first + at_once, len(requests))):

            def keep(answer: GeneratedTokens, index: int = index) -> None:
                answers[index] = answer

            engine.submit(requests[index], deadline=1e9, priority=Priority.INTERACTIVE, on_done=keep)
        while engine.step(0.0):
            pass
    return [answers[index] for index in range(len(requests))]


@pytest.mark.parametrize("cache_tokens", [0, 64, 128, 5 * 64])
@pytest.mark.parametrize("core", [Core.PYTHON, Core.COMPILED])
def test_answers_are_the_same_with_drafts_and_company_as_alone_without(
    directory: Path, core: Core, cache_tokens: int
) -> None:
    rng = random.Random(8)
    plain = NativeOptions(
        precision=Precision.INT8, core=core, slots=1, context=64, queue=99, draft_tokens=0, threads=1
    )
    requests = [
        GenerateTokens(
            random_tokens(rng, rng.randrange(1, 20)),
            rng.randrange(1, 30),
            [1],
            sampling=Sampling() if index % 3 else Sampling(temperature=1.0, top_p=0.9, seed=index),
        )
        for index in range(24)
    ]
    alone = serve(open_engine(directory, plain), requests, 1)
    drafted = [
        GenerateTokens(r.prompt, r.max_tokens, r.stop_ids, imperfect(rng, a.tokens, VOCABULARY), r.sampling)
        for r, a in zip(requests, alone, strict=True)
    ]
    busy = NativeOptions(
        precision=Precision.INT8,
        core=core,
        slots=5,
        context=64,
        queue=99,
        draft_tokens=40,
        prefill_tokens=11,
        threads=2,
        cache_tokens=cache_tokens,
    )
    together = serve(open_engine(directory, busy), drafted, 24)
    assert [(a.tokens, a.finish) for a in together] == [(a.tokens, a.finish) for a in alone]
    assert sum(a.accepted for a in together) > 0


def test_an_engine_for_a_processor_takes_the_decoder_by_default_and_no_torch_options(directory: Path) -> None:
    engine = open_engine(directory, NativeOptions(context=64, slots=2))
    assert isinstance(engine, CompiledEngine)
    with pytest.raises(InvalidOptionError) as raised:
        open_engine(directory, NativeOptions(precision=Precision.INT8, device="cuda", context=64))
    assert raised.value.option == "precision"


def test_kernels_that_this_processor_lacks_are_named(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KERNELS_VARIABLE, "abacus")
    with pytest.raises(InvalidOptionError) as raised:
        open_engine(directory, NativeOptions(precision=Precision.INT8, context=64))
    assert (raised.value.option, raised.value.value) == ("kernels", "abacus")


def test_a_checkpoint_that_lacks_a_tensor_is_refused(tmp_path: Path) -> None:
    write_tiny_model(tmp_path)
    config = (tmp_path / "config.json").read_text()
    (tmp_path / "config.json").write_text(config.replace('"num_hidden_layers": 2', '"num_hidden_layers": 3'))
    with pytest.raises(MissingTensorError):
        open_engine(tmp_path, NativeOptions(precision=Precision.INT8, context=64))


def test_heads_too_wide_for_the_kernels_are_refused(tmp_path: Path) -> None:
    write_tiny_model(tmp_path, hidden=1032, heads=2, kv_heads=1, layers=1)
    with pytest.raises(UnsupportedModelError) as raised:
        open_engine(tmp_path, NativeOptions(precision=Precision.INT8, context=64))
    assert (raised.value.key, raised.value.value) == ("head_dim", 516)


def test_sizes_that_the_weights_cannot_fill_are_refused_before_room_is_made_for_them(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "model") / "config.json"
    config = msgspec.json.decode(path.read_bytes())
    path.write_bytes(msgspec.json.encode(config | {"num_hidden_layers": 4096, "intermediate_size": 1 << 20}))
    with pytest.raises(UnreadableModelError, match="far fewer than"):
        Int8Decoder(load_library(), path.parent, read_config(path.parent), slots=1, context=8, threads=1)
