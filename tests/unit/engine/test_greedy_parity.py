import random
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from copydesk.inference.engine import Engine, Finish, GenerateTokens
from copydesk.inference.engine.native import NativeOptions, Precision, open_engine
from tests.unit.engine.reference import (
    SHAPES,
    assert_greedy,
    random_requests,
    serve_at_random,
    write_reference,
)

VOCABULARY = 96


def open_float32(directory: Path, *, slots: int = 6, context: int = 64, prefill_tokens: int = 40) -> Engine:
    torch.set_num_threads(1)
    options = NativeOptions(
        precision=Precision.FLOAT32, slots=slots, context=context, queue=1000, prefill_tokens=prefill_tokens
    )
    return open_engine(directory, options)


@pytest.mark.parametrize("shape", SHAPES)
def test_answers_equal_those_of_transformers_whatever_runs_beside_them(shape: str, tmp_path: Path) -> None:
    model = write_reference(shape, tmp_path)
    engine = open_float32(tmp_path)
    rng = random.Random(shape)
    requests = random_requests(rng, 40, longest=44, vocabulary=VOCABULARY)
    delivered = serve_at_random(engine, requests, rng, cancel=0.2)

    assert delivered.calls.total() == len(delivered.calls) == len(requests)
    finished = {i: a for i, a in delivered.answers.items() if a.finish is not Finish.CANCELLED}
    assert len(finished) >= len(requests) - len(delivered.cancelled) > 20
    same = [assert_greedy(model, requests[index], answer) for index, answer in finished.items()]
    assert sum(same) >= 0.9 * len(same)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    directory = tmp_path_factory.mktemp("plain")
    return write_reference("plain", directory), directory


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), slots=st.integers(1, 9), prefill_tokens=st.sampled_from([1, 3, 16, 200]))
def test_slots_and_chunks_of_prompts_change_no_answer(
    plain: tuple[Any, Path], seed: int, slots: int, prefill_tokens: int
) -> None:
    model, directory = plain
    engine = open_float32(directory, slots=slots, prefill_tokens=prefill_tokens)
    rng = random.Random(seed)
    requests = random_requests(rng, 12, longest=40, vocabulary=VOCABULARY)
    delivered = serve_at_random(engine, requests, rng, cancel=0.2)
    for index, answer in delivered.answers.items():
        if answer.finish is not Finish.CANCELLED:
            assert_greedy(model, requests[index], answer)
        else:
            assert index in delivered.cancelled


def test_the_reuse_of_a_slot_leaves_no_trace_of_its_last_tenant(plain: tuple[Any, Path]) -> None:
    model, directory = plain
    engine = open_float32(directory, slots=1)
    long = GenerateTokens(prompt=list(range(40)), max_tokens=20, stop_ids=[])
    short = GenerateTokens(prompt=[7, 3], max_tokens=10, stop_ids=[])
    delivered = serve_at_random(engine, [long, short, long, short], random.Random(0))
    assert delivered.answers[1].tokens == delivered.answers[3].tokens
    assert delivered.answers[0].tokens == delivered.answers[2].tokens
    assert_greedy(model, short, delivered.answers[3])


def test_generation_ends_where_the_context_does(plain: tuple[Any, Path]) -> None:
    model, directory = plain
    engine = open_float32(directory, context=32)
    request = GenerateTokens(prompt=list(range(30)), max_tokens=100, stop_ids=[])
    answer = serve_at_random(engine, [request], random.Random(0)).answers[0]
    assert answer.finish is Finish.LENGTH
    assert len(answer.tokens) == answer.completion_tokens == 2
    assert_greedy(model, GenerateTokens(prompt=request.prompt, max_tokens=2, stop_ids=[]), answer)


def test_a_stop_token_counts_but_is_not_returned(plain: tuple[Any, Path]) -> None:
    _, directory = plain
    engine = open_float32(directory)
    free = GenerateTokens(prompt=[5, 6, 7], max_tokens=8, stop_ids=[])
    tokens = serve_at_random(engine, [free], random.Random(0)).answers[0].tokens
    stop = tokens[3]
    first = tokens.index(stop)
    stopped = GenerateTokens(prompt=[5, 6, 7], max_tokens=8, stop_ids=[stop])
    answer = serve_at_random(engine, [stopped], random.Random(0)).answers[0]
    assert answer.finish is Finish.STOP
    assert answer.tokens == tokens[:first]
    assert (answer.prompt_tokens, answer.completion_tokens) == (3, first + 1)
