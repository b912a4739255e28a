"""Drafting changes no answer: transformers is the judge, as it is of the engine without it."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from copydesk.inference.engine import Engine, Finish, GenerateTokens
from copydesk.inference.engine.native import NativeOptions, Precision, open_engine
from tests.unit.engine.reference import (
    assert_greedy,
    imperfect,
    random_requests,
    serve_at_random,
    write_reference,
)

VOCABULARY = 96


def open_float32(
    directory: Path,
    *,
    slots: int = 6,
    context: int = 64,
    prefill_tokens: int = 40,
    draft_tokens: int = 60,
) -> Engine:
    torch.set_num_threads(1)
    options = NativeOptions(
        precision=Precision.FLOAT32,
        slots=slots,
        context=context,
        queue=1000,
        prefill_tokens=prefill_tokens,
        draft_tokens=draft_tokens,
    )
    return open_engine(directory, options)


def with_sources(
    directory: Path, requests: Sequence[GenerateTokens], rng: random.Random, context: int = 64
) -> list[GenerateTokens]:
    """The same requests, each with a source like its answer without drafting."""
    engine = open_float32(directory, context=context, draft_tokens=0)
    answers = serve_at_random(engine, requests, random.Random(0)).answers
    return [
        msgspec.structs.replace(request, source=imperfect(rng, answers[index].tokens, VOCABULARY))
        for index, request in enumerate(requests)
    ]


@pytest.fixture(scope="module", params=["plain", "qwen2", "rope-llama3"])
def reference(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    directory = tmp_path_factory.mktemp(request.param)
    return write_reference(request.param, directory), directory


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 2**32),
    slots=st.integers(1, 9),
    context=st.sampled_from([42, 64]),
    prefill_tokens=st.sampled_from([1, 3, 16, 200]),
    draft_tokens=st.sampled_from([1, 8, 60, 500]),
)
def test_drafts_change_no_answer_whatever_runs_beside_them(
    reference: tuple[Any, Path],
    seed: int,
    slots: int,
    context: int,
    prefill_tokens: int,
    draft_tokens: int,
) -> None:
    model, directory = reference
    rng = random.Random(seed)
    requests = random_requests(rng, 12, longest=40, vocabulary=VOCABULARY)
    sourced = with_sources(directory, requests, rng, context)
    engine = open_float32(
        directory, slots=slots, context=context, prefill_tokens=prefill_tokens, draft_tokens=draft_tokens
    )
    delivered = serve_at_random(engine, sourced, rng, cancel=0.2)
    assert delivered.calls.total() == len(delivered.calls) == len(requests)
    for index, answer in delivered.answers.items():
        if answer.finish is Finish.CANCELLED:
            assert index in delivered.cancelled
            continue
        room = context - len(requests[index].prompt)
        within = msgspec.structs.replace(requests[index], max_tokens=min(requests[index].max_tokens, room))
        assert_greedy(model, within, answer)
        assert answer.accepted <= answer.drafted
        assert answer.passes >= answer.completion_tokens - answer.accepted


def test_good_sources_save_most_passes(reference: tuple[Any, Path]) -> None:
    _, directory = reference
    rng = random.Random(1)
    requests = random_requests(rng, 40, longest=40, vocabulary=VOCABULARY)
    delivered = serve_at_random(open_float32(directory), with_sources(directory, requests, rng), rng)
    answers = delivered.answers.values()
    passes, tokens = sum(a.passes for a in answers), sum(a.completion_tokens for a in answers)
    assert passes < 0.5 * tokens


@pytest.mark.parametrize("length", [3, 6, 9])
def test_a_stop_token_inside_an_agreeing_run_ends_the_answer(reference: tuple[Any, Path], length: int) -> None:
    _, directory = reference
    free = GenerateTokens(prompt=[5, 6, 7], max_tokens=12, stop_ids=[])
    tokens = serve_at_random(open_float32(directory, draft_tokens=0), [free], random.Random(0)).answers[0].tokens
    stops = [VOCABULARY - 1, tokens[length]]
    first = min(place for place, token in enumerate(tokens) if token in stops)
    stopped = GenerateTokens(prompt=[5, 6, 7], max_tokens=12, stop_ids=stops, source=tokens)
    answer = serve_at_random(open_float32(directory), [stopped], random.Random(0)).answers[0]
    assert (answer.tokens, answer.finish, answer.passes) == (tokens[:first], Finish.STOP, 1)
    assert answer.completion_tokens == first + 1


def test_an_answer_that_fills_the_context_is_verified_in_one_pass(reference: tuple[Any, Path]) -> None:
    _, directory = reference
    prompt = list(range(20))
    plain = GenerateTokens(prompt=prompt, max_tokens=100, stop_ids=[])
    expected = serve_at_random(open_float32(directory, context=32, draft_tokens=0), [plain], random.Random(0))
    tokens = expected.answers[0].tokens
    drafted = msgspec.structs.replace(plain, source=tokens * 9)
    answer = serve_at_random(open_float32(directory, context=32), [drafted], random.Random(0)).answers[0]
    assert (answer.tokens, answer.finish) == (tokens, Finish.LENGTH)
    assert (answer.passes, answer.drafted, answer.accepted) == (1, 11, 11)
