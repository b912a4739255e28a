import math
from pathlib import Path

import pytest

from copydesk.common.rpc import Priority
from copydesk.inference.engine import GeneratedTokens, GenerateTokens
from copydesk.inference.pod.engine_loading import load_engine
from copydesk.inference.settings import Draft, Dtype, InferenceSettings
from tests.fixtures.tiny_model import write_tiny_model


def answer(directory: Path, draft: Draft, source: list[int]) -> GeneratedTokens:
    settings = InferenceSettings(
        model_dir=directory, dtype=Dtype.FLOAT32, slots=2, context=64, threads=1, draft=draft
    )
    engine, _ = load_engine(settings)
    answers: list[GeneratedTokens] = []
    request = GenerateTokens(prompt=[5, 60, 17], max_tokens=20, stop_ids=[], source=source)
    engine.submit(request, deadline=math.inf, priority=Priority.INTERACTIVE, on_done=answers.append)
    while engine.step(0.0):
        pass
    return answers[0]


@pytest.mark.parametrize(("draft", "passes"), [(Draft.OFF, 20), (Draft.AUTO, 1)])
def test_the_engine_drafts_unless_the_settings_say_off(draft: Draft, passes: int, tmp_path: Path) -> None:
    plain = answer(write_tiny_model(tmp_path), Draft.OFF, source=[])
    drafted = answer(tmp_path, draft, source=plain.tokens)
    assert drafted.tokens == plain.tokens
    assert drafted.passes == passes
    assert drafted.accepted == drafted.drafted == 20 - passes
