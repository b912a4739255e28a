"""The 8-bit decoder with the real default model: the same answers in any company, and mostly those of float32."""

from __future__ import annotations

import random
from importlib import resources
from pathlib import Path

import pytest
import torch

from copydesk.common.rpc.frames import Priority
from copydesk.inference.correction import Corrector
from copydesk.inference.engine import Engine, Finish, GeneratedTokens, GenerateTokens
from copydesk.inference.engine.native import DRAFT_TOKENS, NativeOptions, Precision, open_engine
from tests.fixtures.default_model import default_model_or_skip
from tests.unit.engine.reference import serve_at_random

COUNT = 24
WORKLOAD = Path(str(resources.files("copydesk.cli.bench").joinpath("data", "gec-workload.txt")))

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def directory() -> Path:
    return default_model_or_skip()


@pytest.fixture(scope="module")
def requests(directory: Path) -> list[GenerateTokens]:
    corrector = Corrector.load(directory)
    return [corrector.encode(text).request() for text in WORKLOAD.read_text().splitlines()[:COUNT]]


def opened(directory: Path, precision: Precision, *, slots: int, draft_tokens: int, threads: int = 1) -> Engine:
    options = NativeOptions(
        precision=precision, slots=slots, context=256, draft_tokens=draft_tokens, threads=threads
    )
    return open_engine(directory, options)


def one_at_a_time(engine: Engine, requests: list[GenerateTokens]) -> list[GeneratedTokens]:
    answers: list[GeneratedTokens] = []
    for request in requests:
        engine.submit(request, deadline=1e9, priority=Priority.INTERACTIVE, on_done=answers.append)
        while engine.step(0.0):
            pass
    return answers


@pytest.fixture(scope="module")
def in_company(directory: Path, requests: list[GenerateTokens]) -> list[GeneratedTokens]:
    engine = opened(directory, Precision.INT8, slots=16, draft_tokens=DRAFT_TOKENS, threads=2)
    delivered = serve_at_random(engine, requests, random.Random(1)).answers
    return [delivered[index] for index in range(COUNT)]


def test_drafts_and_company_change_no_token(
    directory: Path, requests: list[GenerateTokens], in_company: list[GeneratedTokens]
) -> None:
    alone = one_at_a_time(opened(directory, Precision.INT8, slots=1, draft_tokens=0), requests)
    assert [(a.tokens, a.finish) for a in in_company] == [(a.tokens, a.finish) for a in alone]
    assert sum(answer.finish is Finish.STOP for answer in alone) > 0.9 * COUNT
    assert sum(answer.passes for answer in in_company) < 0.3 * sum(answer.passes for answer in alone)


def test_most_answers_are_those_of_float32(
    directory: Path, requests: list[GenerateTokens], in_company: list[GeneratedTokens]
) -> None:
    before = torch.get_num_threads()
    try:
        engine = opened(directory, Precision.FLOAT32, slots=16, draft_tokens=DRAFT_TOKENS)
        exact = serve_at_random(engine, requests, random.Random(2)).answers
    finally:
        torch.set_num_threads(before)
    same = sum(exact[index].tokens == in_company[index].tokens for index in range(COUNT))
    assert same > 0.5 * COUNT
