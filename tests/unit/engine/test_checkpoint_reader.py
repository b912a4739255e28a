import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from copydesk.inference.engine.native import MissingTensorError, TensorMismatchError, UnreadableModelError
from copydesk.inference.engine.native.checkpoint import CheckpointReader

A, B = torch.arange(6.0).view(2, 3), torch.arange(3.0)


def test_a_single_file_is_read(tmp_path: Path) -> None:
    save_file({"a": A, "b": B}, tmp_path / "model.safetensors")
    with CheckpointReader(tmp_path, torch.float32) as reader:
        assert torch.equal(reader.tensor("a", 2, 3), A)
        assert torch.equal(reader.tensor("b", 3), B)


def test_shards_are_read_through_their_index(tmp_path: Path) -> None:
    save_file({"a": A}, tmp_path / "one.safetensors")
    save_file({"b": B}, tmp_path / "two.safetensors")
    index = {"metadata": {"total_size": 36}, "weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with CheckpointReader(tmp_path, torch.float32) as reader:
        assert torch.equal(reader.tensor("a", 2, 3), A)
        assert torch.equal(reader.tensor("b", 3), B)


def test_tensors_are_converted_and_outlive_the_file(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"a": A.to(torch.bfloat16)}, path)
    with CheckpointReader(tmp_path, torch.bfloat16) as reader:
        kept = reader.tensor("a", 2, 3)
    path.write_bytes(b"\0" * path.stat().st_size)
    assert torch.equal(kept, A.to(torch.bfloat16))


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    save_file({"a": A}, tmp_path / "model.safetensors")
    with CheckpointReader(tmp_path, torch.float32) as reader, pytest.raises(MissingTensorError) as raised:
        reader.tensor("lm_head.weight", 2, 3)
    assert raised.value.name == "lm_head.weight"


@pytest.mark.parametrize("stored", [A.T.contiguous(), A.to(torch.int8)])
def test_another_shape_or_type_is_refused(tmp_path: Path, stored: torch.Tensor) -> None:
    save_file({"a": stored}, tmp_path / "model.safetensors")
    with CheckpointReader(tmp_path, torch.float32) as reader, pytest.raises(TensorMismatchError) as raised:
        reader.tensor("a", 2, 3)
    assert raised.value.name == "a"


def test_missing_and_broken_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(UnreadableModelError) as raised:
        CheckpointReader(tmp_path, torch.float32)
    assert raised.value.path == tmp_path / "model.safetensors"
    (tmp_path / "model.safetensors").write_bytes(b"not a checkpoint")
    with pytest.raises(UnreadableModelError):
        CheckpointReader(tmp_path, torch.float32)
    (tmp_path / "model.safetensors.index.json").write_text("[]")
    with pytest.raises(UnreadableModelError) as raised:
        CheckpointReader(tmp_path, torch.float32)
    assert raised.value.path == tmp_path / "model.safetensors.index.json"


@pytest.mark.parametrize("name", ["../model.safetensors", "/etc/passwd", "sub/one.safetensors", ""])
def test_an_index_cannot_lead_out_of_its_directory(tmp_path: Path, name: str) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(UnreadableModelError):
        CheckpointReader(tmp_path, torch.float32)
