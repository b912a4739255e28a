"""A whole model in FP8: emulated, against transformers with rounded activations, and by the products of GPUs."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from structlog.testing import capture_logs

from copydesk.common.rpc.frames import Priority
from copydesk.inference.engine import GeneratedTokens, GenerateTokens
from copydesk.inference.engine.native import (
    Core,
    InvalidOptionError,
    NativeOptions,
    Precision,
    open_engine,
    weights,
)
from copydesk.inference.engine.native.config import read_config
from copydesk.inference.engine.native.fp8.choice import Fp8Arithmetic
from copydesk.inference.engine.native.fp8.kernels import ROW_STEP, TorchKernels
from copydesk.inference.engine.native.fp8.products import Multiply, Product
from copydesk.inference.engine.native.layout import Run
from copydesk.inference.engine.native.precision import computes_fp8, torch_dtype
from copydesk.inference.engine.native.runner import TorchRunner
from copydesk.inference.quantisation.arithmetic import quantise_tokens
from copydesk.inference.quantisation.scheme import Quantisation, Scheme, WeightScale
from tests.fixtures.quantised_model import every, multiplied_out, quantised_copy
from tests.unit.engine.reference import write_reference

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)
PROMPT = [5, 17, 3, 60, 9, 33, 2, 71]
FP8 = every(Scheme.FP8)
PLANS = {
    "all": (),
    "attention kept": ("re:.*self_attn.*",),
    "mlp kept": ("re:.*mlp.*",),
    "a layer kept": ("re:model\\.layers\\.1\\.",),
    "queries kept": ("re:.*q_proj",),
    "keys kept": ("re:.*k_proj",),
    "gates kept": ("re:.*gate_proj",),
    "ups kept": ("model.layers.0.mlp.up_proj",),
    "downs kept": ("re:.*down_proj",),
    "outputs kept": ("re:.*o_proj",),
}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Plain weights; the model has biases everywhere."""
    directory = tmp_path_factory.mktemp("plain")
    write_reference("biases", directory)
    return directory


def scores(directory: Path, *, fp8: bool = True, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    torch.set_num_threads(1)
    config = read_config(directory)
    runner = TorchRunner(directory, config, slots=1, context=32, dtype=dtype, device=CPU, fp8=fp8)
    return runner.logits([Run(0, 0, 0, PROMPT, len(PROMPT))])[0].float()


def rounding_scores(twin: Path, quantisation: Quantisation) -> torch.Tensor:
    """What transformers computes of plain weights when the input of each quantised module is rounded."""
    kind: Any = transformers.AutoModelForCausalLM
    model = kind.from_pretrained(twin, dtype=torch.float32).eval()

    def rounded(_: Any, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor]:
        (x,) = inputs
        values, scale = quantise_tokens(x.reshape(-1, x.shape[-1]).numpy(), Scheme.FP8)
        return (torch.from_numpy(values.astype(np.float32) * scale).view_as(x),)

    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and quantisation.quantises(name):
            module.register_forward_pre_hook(rounded)
    with torch.no_grad():
        found: torch.Tensor = model(torch.tensor([PROMPT])).logits[0]
    return found


@pytest.mark.parametrize(
    ("keep", "weight_scale"),
    [
        *((keep, WeightScale.CHANNEL) for keep in PLANS),
        *((keep, WeightScale.TENSOR) for keep in ("all", "keys kept", "gates kept")),
    ],
)
def test_emulated_scores_are_those_of_transformers_with_rounded_activations(
    plain: Path, tmp_path: Path, keep: str, weight_scale: WeightScale
) -> None:
    """But where a sum's last bit decides how an activation is rounded: then a few numbers are a step apart."""
    quantisation = every(Scheme.FP8, weight_scale, *PLANS[keep])
    twin = multiplied_out(plain, tmp_path / "twin", quantisation)
    expected = rounding_scores(twin, quantisation)
    found = scores(quantised_copy(plain, tmp_path / "q", quantisation))
    unrounded = scores(twin, fp8=False)
    assert distance(found, expected) < 0.2 * distance(unrounded, expected)


def distance(a: torch.Tensor, b: torch.Tensor) -> float:
    return (a - b).abs().mean().item()


@pytest.mark.parametrize("product", [Product.ROWWISE, Product.TENSORWISE])
@pytest.mark.parametrize("keep", [(), PLANS["keys kept"] + PLANS["gates kept"]])
@pytest.mark.parametrize("weight_scale", WeightScale)
def test_products_of_gpus_give_nearly_what_is_emulated(
    plain: Path,
    tmp_path: Path,
    keep: tuple[str, ...],
    weight_scale: WeightScale,
    product: Product,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Torch has them for processors too, slow: the layers are built, and rows padded, as on a GPU."""
    path = quantised_copy(plain, tmp_path / "q", every(Scheme.FP8, weight_scale, *keep))
    found = scores_by(Fp8Arithmetic(TorchKernels(ROW_STEP), product), path, monkeypatch)
    emulated = scores_by(InBfloat16(TorchKernels(), Product.EMULATED), path, monkeypatch)
    assert distance(found, emulated) < 0.3 * distance(scores(path), emulated)


class InBfloat16(Fp8Arithmetic):
    """The emulated product, its answers rounded to bfloat16 as those of GPUs are."""

    def multiply(self, weight: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor | None) -> Multiply:
        product = super().multiply(weight, scale, bias)
        return lambda rows: product(rows).bfloat16()


def scores_by(arithmetic: Fp8Arithmetic, path: Path, monkeypatch: pytest.MonkeyPatch) -> torch.Tensor:
    with monkeypatch.context() as patch:
        patch.setattr(weights, "choose_arithmetic", lambda device: arithmetic)
        return scores(path, dtype=torch.bfloat16)


def test_a_head_in_fp8_is_multiplied_in_fp8(plain: Path, tmp_path: Path) -> None:
    quantisation = Quantisation(Scheme.FP8, WeightScale.CHANNEL, ("re:model.*",))
    twin = multiplied_out(plain, tmp_path / "twin", quantisation)
    found = scores(quantised_copy(plain, tmp_path / "q", quantisation))
    torch.testing.assert_close(found, rounding_scores(twin, quantisation), rtol=1e-3, atol=1e-3)


def test_shapes_that_hardware_does_not_multiply_are_multiplied_out_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_reference("plain", tmp_path / "plain")
    path = quantised_copy(tmp_path / "plain", tmp_path / "q", FP8)
    in_fp8 = scores(path)
    monkeypatch.setattr(Fp8Arithmetic, "takes", lambda self, outputs, inputs: outputs != 16)
    with capture_logs() as events:
        found = scores(path)
    told = [event for event in events if event["event"] == "fp8_shape_dequantised"]
    assert [(event["outputs"], event["inputs"]) for event in told] == [(16, 48)]
    keys = every(Scheme.FP8, WeightScale.CHANNEL, "re:.*[kv]_proj")
    twin = multiplied_out(tmp_path / "plain", tmp_path / "twin", FP8)
    assert torch.equal(found, scores(quantised_copy(twin, tmp_path / "kept", keys)))
    assert not torch.equal(found, in_fp8)


def answers(directory: Path, **options: Any) -> list[list[int]]:
    engine = open_engine(directory, NativeOptions(slots=4, context=64, threads=1, queue=9, **options))
    done: dict[int, list[int]] = {}
    for index in range(6):
        request = GenerateTokens(prompt=PROMPT[index:], max_tokens=12, stop_ids=[], source=[9, 3, 3, 70])

        def keep(answer: GeneratedTokens, index: int = index) -> None:
            done[index] = answer.tokens

        engine.submit(request, deadline=1e9, priority=Priority.INTERACTIVE, on_done=keep)
    while engine.step(0.0):
        pass
    return [done[index] for index in range(6)]


def test_an_engine_emulates_fp8_on_a_processor_when_told(plain: Path, tmp_path: Path) -> None:
    path = quantised_copy(plain, tmp_path / "q", FP8)
    emulated = [
        answers(path, precision=Precision.FP8, core=core, draft_tokens=drafts)
        for core, drafts in itertools.product((Core.PYTHON, Core.COMPILED), (0, 40))
    ]
    assert all(each == emulated[0] for each in emulated)
    assert emulated[0] != answers(path, precision=Precision.FLOAT32)


@pytest.mark.parametrize("scheme", Scheme)
@pytest.mark.parametrize("precision", [Precision.AUTO, Precision.INT8, Precision.BFLOAT16, Precision.FLOAT32])
def test_every_other_arithmetic_serves_both_kinds_of_checkpoints(
    plain: Path, tmp_path: Path, scheme: Scheme, precision: Precision
) -> None:
    path = quantised_copy(plain, tmp_path / "q", every(scheme), shards=2)
    assert [len(answer) for answer in answers(path, precision=precision)] == [12] * 6


@pytest.mark.parametrize(
    ("quantisation", "expected"),
    [
        (None, "another: this checkpoint is not quantised; `copydesk model quantize` makes one in FP8"),
        (every(Scheme.INT8), "another: this checkpoint is in int8; `copydesk model quantize` makes one in FP8"),
    ],
)
def test_fp8_of_a_checkpoint_that_has_none_is_refused(
    plain: Path, tmp_path: Path, quantisation: Quantisation | None, expected: str
) -> None:
    path = plain if quantisation is None else quantised_copy(plain, tmp_path / "q", quantisation)
    with pytest.raises(InvalidOptionError) as raised:
        open_engine(path, NativeOptions(precision=Precision.FP8, context=64))
    assert (raised.value.option, raised.value.value, raised.value.expected) == ("precision", "fp8", expected)


@pytest.mark.parametrize(
    ("capability", "able"), [((8, 0), False), ((8, 6), False), ((8, 9), True), ((9, 0), True), ((10, 0), True)]
)
def test_gpus_from_ada_on_multiply_in_fp8_and_others_by_what_the_weights_stand_for(
    capability: tuple[int, int], able: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    with capture_logs() as events:
        assert computes_fp8(Precision.AUTO, GPU, FP8) is able
    assert [event["event"] for event in events] == ([] if able else ["gpu_has_no_fp8"])
    assert not computes_fp8(Precision.AUTO, GPU, every(Scheme.INT8))
    assert not computes_fp8(Precision.AUTO, GPU, None)
    assert not computes_fp8(Precision.BFLOAT16, GPU, FP8)
    assert torch_dtype(Precision.FP8, GPU) == torch_dtype(Precision.AUTO, GPU) == torch.bfloat16
    if able:
        assert computes_fp8(Precision.FP8, GPU, FP8)
        return
    with pytest.raises(InvalidOptionError, match="cuda:0 does not multiply in FP8"):
        computes_fp8(Precision.FP8, GPU, FP8)


def test_a_processor_emulates_in_float32_and_only_when_told() -> None:
    assert computes_fp8(Precision.FP8, CPU, FP8)
    assert torch_dtype(Precision.FP8, CPU) == torch.float32
    assert not computes_fp8(Precision.AUTO, CPU, FP8)


def test_where_no_product_runs_weights_are_multiplied_out(
    plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = quantised_copy(plain, tmp_path / "q", FP8)
    monkeypatch.setattr(weights, "choose_arithmetic", lambda device: None)
    assert torch.equal(scores(path), scores(path, fp8=False))
