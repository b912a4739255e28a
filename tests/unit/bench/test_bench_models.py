import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from gguf import GGUFReader

from copydesk.cli.bench.gguf_file import gguf_name, permute, write_gguf
from copydesk.cli.bench.int8_checkpoint import quantise, read_weights, write_int8_checkpoint
from copydesk.cli.bench.rival_models import RivalModels
from copydesk.inference.checkpoint.gguf import hugging_face_name, unpermute
from tests.fixtures.tiny_model import write_tiny_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model"), tied=True, dtype="bfloat16")


def test_a_weight_in_8_bits_is_off_by_half_a_step_at_most() -> None:
    weight = np.random.default_rng(1).normal(size=(16, 64)).astype(ml_dtypes.bfloat16)
    quantised, scale = quantise(weight)
    assert quantised.dtype == np.int8
    assert scale.dtype == ml_dtypes.bfloat16
    assert scale.shape == (16, 1)
    step = scale.astype(np.float32)
    error = np.abs(quantised * step - weight.astype(np.float32))
    inside = np.abs(quantised) < 127
    assert (error <= step / 2 + 1e-6)[inside].all()
    assert (error <= step).all()


def test_a_row_of_zeros_stays_zero() -> None:
    quantised, _ = quantise(np.zeros((2, 8), np.float32))
    assert not quantised.any()


def test_the_int8_checkpoint_has_linears_in_8_bits_and_all_else_as_it_was(model: Path, tmp_path: Path) -> None:
    write_int8_checkpoint(model, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["quantization_config"]["format"] == "int-quantized"
    raw = (tmp_path / "model.safetensors").read_bytes()
    header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    name = "model.layers.0.self_attn.q_proj.weight"
    assert (header[name]["dtype"], header[f"{name}_scale"]["dtype"]) == ("I8", "BF16")
    assert header["model.embed_tokens.weight"]["dtype"] == "BF16"
    assert (tmp_path / "tokenizer.json").read_bytes() == (model / "tokenizer.json").read_bytes()


def test_names_and_rows_of_gguf_are_those_that_its_reader_undoes(model: Path) -> None:
    weights = read_weights(model)
    assert all(hugging_face_name(gguf_name(name)) == name for name in weights)
    query = weights["model.layers.0.self_attn.q_proj.weight"].astype(np.float32)
    assert (unpermute(permute(query, 4), 4) == query).all()


def test_the_gguf_file_has_every_tensor_and_token(model: Path, tmp_path: Path) -> None:
    write_gguf(model, tmp_path / "model.gguf")
    reader = GGUFReader(tmp_path / "model.gguf")
    assert {hugging_face_name(tensor.name) for tensor in reader.tensors} == read_weights(model).keys()
    tokens = reader.get_field("tokenizer.ggml.tokens")
    assert tokens is not None
    assert len(tokens.contents()) == json.loads((model / "config.json").read_text())["vocab_size"]


def test_a_converted_model_is_made_once_and_half_of_one_is_made_again(model: Path, tmp_path: Path) -> None:
    models = RivalModels(model, "sha256:abc", tmp_path)
    first = models.int8_checkpoint()
    stamp = (first / "config.json").stat().st_mtime_ns
    assert RivalModels(model, "sha256:abc", tmp_path).int8_checkpoint() == first
    assert (first / "config.json").stat().st_mtime_ns == stamp
    partial = first.with_name(".gguf.partial")
    partial.mkdir()
    (partial / "rubbish").touch()
    assert models.gguf().stat().st_size > 1000
    assert not (models.gguf().parent / "rubbish").exists()
