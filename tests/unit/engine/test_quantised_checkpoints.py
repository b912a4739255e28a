"""Checkpoints in 8 bits: both readers find the same numbers, and refuse what does not fit together."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from copydesk.inference.engine.native import MissingTensorError, TensorMismatchError, UnreadableModelError
from copydesk.inference.engine.native.checkpoint import CheckpointReader, QuantisedWeight
from copydesk.inference.engine.native.config import ModelConfig, read_config
from copydesk.inference.engine.native.layout import Run
from copydesk.inference.engine.native.runner import TorchRunner
from copydesk.inference.engine.native.tensors import StoredTensors
from copydesk.inference.quantisation.scheme import Quantisation, Scheme, WeightScale
from tests.fixtures.quantised_model import Tensors, eight_bits, every, multiplied_out, quantised_copy
from tests.unit.engine.reference import write_reference

UP, DOWN = "model.layers.1.mlp.up_proj", "model.layers.1.mlp.down_proj"
ROWS, COLUMNS = 80, 48
FOREIGN = Path(__file__).parent / "compressed_tensors_8bit.safetensors"
BOTH = [
    pytest.param(lambda path, config: CheckpointReader(path, torch.float32, config.quantisation), id="torch"),
    pytest.param(lambda path, config: StoredTensors(path, config.quantisation), id="numpy"),
]
Open = Callable[[Path, ModelConfig], CheckpointReader | StoredTensors]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("plain")
    write_reference("plain", directory)
    return directory


@pytest.mark.parametrize("scale_dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("weight_scale", WeightScale)
@pytest.mark.parametrize("scheme", Scheme)
@pytest.mark.parametrize("shards", [1, 3])
def test_both_readers_hand_out_what_is_stored(
    plain: Path, tmp_path: Path, scheme: Scheme, weight_scale: WeightScale, scale_dtype: torch.dtype, shards: int
) -> None:
    quantisation = every(scheme, weight_scale)
    path = quantised_copy(plain, tmp_path / "q", quantisation, scale_dtype=scale_dtype, shards=shards)
    twin = load_file(multiplied_out(plain, tmp_path / "twin", quantisation) / "model.safetensors")
    with CheckpointReader(path, torch.float32, read_config(path).quantisation) as reader:
        ours = reader.weight(UP, ROWS, COLUMNS)
    assert isinstance(ours, QuantisedWeight)
    assert torch.equal(ours.dequantised(torch.float32), twin[UP + ".weight"])
    stored = StoredTensors(path, read_config(path).quantisation).weight(UP, ROWS, COLUMNS)
    assert stored.dtype == {"fp8": "F8_E4M3", "int8": "I8"}[scheme]
    assert stored.scale is not None
    np.testing.assert_array_equal(stored.data, ours.values.view(torch.uint8).flatten().numpy())
    np.testing.assert_array_equal(stored.scale, ours.scale.flatten().numpy())


@pytest.mark.parametrize("scheme", Scheme)
@pytest.mark.parametrize("weight_scale", WeightScale)
def test_what_another_library_wrote_is_read_as_it_reads_it(
    scheme: Scheme, weight_scale: WeightScale, tmp_path: Path
) -> None:
    """compressed-tensors 0.17.0 rounded a random matrix, per channel with bfloat16 scales, and dequantised it."""
    module = f"{scheme}.{weight_scale}"
    (tmp_path / "model.safetensors").write_bytes(FOREIGN.read_bytes())
    quantisation = Quantisation(scheme, weight_scale, ())
    with CheckpointReader(tmp_path, torch.float32, quantisation) as reader, safe_open(FOREIGN, "pt") as file:
        weight = reader.weight(module, 8, 16)
        expected = file.get_tensor(f"{module}.expected")
    assert isinstance(weight, QuantisedWeight)
    assert torch.equal(weight.dequantised(torch.float32), expected)
    if (scheme, weight_scale) == (Scheme.INT8, WeightScale.CHANNEL):
        assert weight.values.min() == -128  # which our own quantiser never writes


def drop(name: str) -> Callable[[Tensors], object]:
    return lambda tensors: tensors.pop(name)


def put(name: str, tensor: torch.Tensor) -> Callable[[Tensors], object]:
    return lambda tensors: tensors.update({name: tensor})


def put_scale(row: int, value: float) -> Callable[[Tensors], object]:
    def change(tensors: Tensors) -> None:
        tensors[UP + ".weight_scale"][row] = value

    return change


SCALE = UP + ".weight_scale"
FITTING = torch.ones(ROWS, 1, dtype=torch.bfloat16)


@pytest.mark.parametrize("open_reader", BOTH)
@pytest.mark.parametrize(
    ("damage", "error", "message"),
    [
        (drop(SCALE), MissingTensorError, f"no tensor {SCALE}"),
        (put(SCALE, FITTING[:-1]), TensorMismatchError, f"{SCALE} is of shape [79, 1]; expected [80, 1]"),
        (put(SCALE, FITTING[:1]), TensorMismatchError, f"{SCALE} is of shape [1, 1]; expected [80, 1]"),
        (put(SCALE, FITTING.flatten()), TensorMismatchError, f"{SCALE} is of shape [80]; expected [80, 1]"),
        (put(SCALE, FITTING.half()), TensorMismatchError, f"{SCALE} is of type F16; expected float32 or bfloat16"),
        (put_scale(7, float("nan")), TensorMismatchError, f"{SCALE} is nan at row 7; expected finite and greater"),
        (put_scale(0, float("inf")), TensorMismatchError, f"{SCALE} is inf at row 0; expected finite and greater"),
        (put_scale(79, -1.0), TensorMismatchError, f"{SCALE} is -1.0 at row 79; expected finite and greater"),
        (put_scale(3, 0.0), TensorMismatchError, f"{SCALE} is 0.0 at row 3; expected finite and greater"),
        (
            put(UP + ".weight", torch.zeros(ROWS, COLUMNS, dtype=torch.bfloat16)),
            TensorMismatchError,
            f"{SCALE} is a scale, while {UP}.weight is of type BF16; expected no scale without a weight in 8 bits",
        ),
        (
            put("model.norm.weight_scale", FITTING),
            TensorMismatchError,
            "model.norm.weight_scale is a scale, while model.norm.weight is of type F32",
        ),
        (
            put("model.layers.9.mlp.up_proj.weight_scale", FITTING),
            TensorMismatchError,
            "model.layers.9.mlp.up_proj.weight is missing",
        ),
        (
            put(UP + ".weight", torch.zeros(ROWS, COLUMNS, dtype=torch.int8)),
            TensorMismatchError,
            f"{UP}.weight is of type I8; expected F8_E4M3, as quantization_config says",
        ),
        (
            put(UP + ".weight_zero_point", FITTING),
            TensorMismatchError,
            f"{UP}.weight_zero_point is of a quantisation that is not served",
        ),
        (
            put("model.layers.0.self_attn.k_scale", FITTING),
            TensorMismatchError,
            "k_scale is of a quantisation that is not served",
        ),
        (
            put(UP + ".weight", torch.zeros(ROWS, COLUMNS - 1).to(torch.float8_e4m3fn)),
            TensorMismatchError,
            f"{UP}.weight is of shape [80, 47]; expected [80, 48]",
        ),
    ],
)
def test_weights_and_scales_that_do_not_belong_together_are_refused(
    open_reader: Open,
    damage: Callable[[Tensors], object],
    error: type[Exception],
    message: str,
    plain: Path,
    tmp_path: Path,
) -> None:
    path = quantised_copy(plain, tmp_path / "q", every(Scheme.FP8), damage=damage)
    with pytest.raises(error, match=re.escape(message)):
        open_reader(path, read_config(path)).weight(UP, ROWS, COLUMNS)


@pytest.mark.parametrize("open_reader", BOTH)
def test_a_kept_module_must_not_be_stored_in_8_bits_nor_a_quantised_one_in_more(
    open_reader: Open, plain: Path, tmp_path: Path
) -> None:
    path = quantised_copy(plain, tmp_path / "q", every(Scheme.FP8, WeightScale.CHANNEL, DOWN))
    config = (path / "config.json").read_text()
    (path / "config.json").write_text(config.replace(DOWN, UP))
    reader = open_reader(path, read_config(path))
    with pytest.raises(TensorMismatchError, match="F8_E4M3; expected float32, bfloat16 or float16"):
        reader.weight(UP, ROWS, COLUMNS)
    with pytest.raises(TensorMismatchError, match="F32; expected F8_E4M3, as quantization_config says"):
        reader.weight(DOWN, COLUMNS, ROWS)


@pytest.mark.parametrize("open_reader", BOTH)
@pytest.mark.parametrize("scheme", Scheme)
def test_a_channel_of_zeros_may_have_the_scale_zero(
    open_reader: Open, scheme: Scheme, plain: Path, tmp_path: Path
) -> None:
    def clear(tensors: Tensors) -> None:
        stored = np.zeros((ROWS, COLUMNS), np.uint8)
        stored[1:] = 1
        stored[0, 1] = 0x80 if scheme is Scheme.FP8 else 0  # a negative zero
        tensors[UP + ".weight"] = eight_bits(stored, scheme)
        tensors[SCALE][0] = 0.0

    path = quantised_copy(plain, tmp_path / "q", every(scheme), damage=clear)
    assert open_reader(path, read_config(path)).weight(UP, ROWS, COLUMNS).scale.flatten()[0] == 0  # type: ignore[union-attr]


@pytest.mark.parametrize("open_reader", BOTH)
def test_weights_in_8_bits_need_a_configuration_that_says_so(
    open_reader: Open, plain: Path, tmp_path: Path
) -> None:
    path = quantised_copy(plain, tmp_path / "q", every(Scheme.INT8))
    (path / "config.json").write_text((plain / "config.json").read_text())
    with pytest.raises(TensorMismatchError, match="of type I8; expected float32, bfloat16 or float16"):
        open_reader(path, read_config(path)).weight(UP, ROWS, COLUMNS)


KEEP = {
    "nothing": (),
    "attention": ("re:.*self_attn.*",),
    "all but attention": ("re:.*mlp.*",),
    "a layer": ("re:model\\.layers\\.1\\.",),
    "queries of a layer": ("model.layers.0.self_attn.q_proj",),
    "keys and gates": ("re:.*k_proj", "re:.*gate_proj"),
}


@pytest.mark.parametrize("keep", KEEP.values(), ids=KEEP)
@pytest.mark.parametrize("scheme", Scheme)
@pytest.mark.parametrize("weight_scale", WeightScale)
def test_scores_are_those_of_the_weights_multiplied_out(
    scheme: Scheme, weight_scale: WeightScale, keep: tuple[str, ...], plain: Path, tmp_path: Path
) -> None:
    quantisation = every(scheme, weight_scale, *keep)
    ours = scores(quantised_copy(plain, tmp_path / "q", quantisation))
    assert torch.equal(ours, scores(multiplied_out(plain, tmp_path / "twin", quantisation)))
    assert not torch.equal(ours, scores(plain))


def test_a_quantised_head_and_biases_are_read(tmp_path: Path) -> None:
    write_reference("biases", tmp_path / "plain")
    quantisation = Quantisation(Scheme.FP8, WeightScale.CHANNEL, ())
    path = quantised_copy(tmp_path / "plain", tmp_path / "q", quantisation)
    twin = multiplied_out(tmp_path / "plain", tmp_path / "twin", quantisation)
    assert torch.equal(scores(path), scores(twin))


def scores(directory: Path, *, fp8: bool = False) -> torch.Tensor:
    torch.set_num_threads(1)
    runner = TorchRunner(
        directory,
        read_config(directory),
        slots=1,
        context=32,
        dtype=torch.float32,
        device=torch.device("cpu"),
        fp8=fp8,
    )
    return runner.logits([Run(0, 0, 0, [5, 17, 3, 60, 9], 5)])[0]


@pytest.mark.parametrize(
    "change",
    [
        {"data_offsets": [-100, 100]},
        {"data_offsets": [-(2**70), -(2**70) + 200]},
        {"shape": [2**70, 2**70]},
    ],
)
def test_a_tensor_that_does_not_lie_in_its_file_is_refused_before_it_is_read(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    header = json.dumps({"x": {"dtype": "BF16", "shape": [100], "data_offsets": [0, 200]} | change}).encode()
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"\0" * 200)
    with pytest.raises(UnreadableModelError):
        StoredTensors(tmp_path)
