import math
from pathlib import Path

import pytest

from copydesk.common.rpc import Priority
from copydesk.inference.engine import GeneratedTokens, GenerateTokens
from copydesk.inference.pod.engine_loading import load_engine
from copydesk.inference.pod.failure import CannotStartError
from copydesk.inference.quantisation.scheme import Scheme
from copydesk.inference.settings import Draft, Dtype, InferenceSettings
from tests.fixtures.quantised_model import every, quantised_copy
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


def test_an_arithmetic_that_a_device_does_not_have_is_told_by_the_name_of_the_setting(tmp_path: Path) -> None:
    settings = InferenceSettings(
        model_dir=write_tiny_model(tmp_path), dtype=Dtype.INT8, device="null:5", context=64
    )
    with pytest.raises(CannotStartError) as raised:
        load_engine(settings)
    assert str(raised.value) == (
        "COPYDESK_INFERENCE_DTYPE: 'int8'; expected auto, fp8, bfloat16 or float32 on null:5: "
        "int8 is for processors"
    )


def test_kernels_that_there_are_not_are_told_by_the_name_of_their_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COPYDESK_INT8_KERNELS", "abacus")
    settings = InferenceSettings(model_dir=write_tiny_model(tmp_path), dtype=Dtype.INT8, context=64)
    with pytest.raises(CannotStartError) as raised:
        load_engine(settings)
    assert str(raised.value).startswith("COPYDESK_INT8_KERNELS: 'abacus'; expected ")


def test_fp8_of_a_model_that_is_not_quantised_is_told_by_the_name_of_the_setting(tmp_path: Path) -> None:
    settings = InferenceSettings(model_dir=write_tiny_model(tmp_path), dtype=Dtype.FP8, context=64)
    with pytest.raises(CannotStartError) as raised:
        load_engine(settings)
    assert str(raised.value) == (
        "COPYDESK_INFERENCE_DTYPE: 'fp8'; expected another: this checkpoint is not quantised; "
        "`copydesk model quantize` makes one in FP8"
    )


@pytest.mark.parametrize("dtype", [Dtype.FP8, Dtype.INT8, Dtype.FLOAT32])
def test_a_scale_that_lacks_is_named(dtype: Dtype, tmp_path: Path) -> None:
    scale = "model.layers.1.mlp.up_proj.weight_scale"
    source = write_tiny_model(tmp_path / "plain")
    path = quantised_copy(source, tmp_path / "q", every(Scheme.FP8), damage=lambda tensors: tensors.pop(scale))
    with pytest.raises(CannotStartError) as raised:
        load_engine(InferenceSettings(model_dir=path, dtype=dtype, context=64))
    assert str(raised.value) == f"COPYDESK_INFERENCE_MODEL_DIR: the weights have no tensor {scale}"
