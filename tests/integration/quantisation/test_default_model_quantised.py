"""The default model in 8 bits: it loses what 8 bits lose, and nearly always chooses the token of the original."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from copydesk.inference.quantisation.judging.sweep import judge
from copydesk.inference.quantisation.judging.texts import read_questions
from copydesk.inference.quantisation.modules import linear_modules
from copydesk.inference.quantisation.plan import PrecisionPlan, resolve
from copydesk.inference.quantisation.source import open_source
from tests.fixtures.default_model import default_model_or_skip

TEXTS = 8


@pytest.fixture(scope="module")
def model() -> Path:
    return default_model_or_skip()


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.slow
def test_it_chooses_the_originals_tokens_and_loses_what_eight_bits_lose(model: Path) -> None:
    source = open_source(model)
    quantisation = resolve(PrecisionPlan(), linear_modules(source.config)).quantisation
    measured = judge(source, quantisation, read_questions(model)[:TEXTS], lambda _stage, _share: None)
    assert measured.evaluation.texts == TEXTS
    assert measured.evaluation.answer_tokens > 8 * TEXTS
    assert {entry.variant for entry in measured.agreement} == {"all layers", "attention kept"}
    for entry in measured.agreement:
        # .98 by token in other measurements; of a hundred tokens, five may well differ.
        assert entry.share > 0.95, entry
    for errors in measured.weight.values():
        assert 0.024 < errors.channel < 0.028
    assert max(errors.channel for errors in measured.output.values()) < 0.1
