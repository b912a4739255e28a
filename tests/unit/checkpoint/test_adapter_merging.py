from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from copydesk.inference.checkpoint.adapter import Adapter
from copydesk.inference.checkpoint.errors import AdapterError

Q = "model.layers.0.self_attn.q_proj.weight"
BF16 = ml_dtypes.bfloat16


def write_adapter(folder: Path, tensors: dict[str, list[list[float]]], **config: object) -> Path:
    folder.mkdir(exist_ok=True)
    save_file(
        {name: np.array(value, dtype=BF16) for name, value in tensors.items()},
        folder / "adapter_model.safetensors",
    )
    settings = {"peft_type": "LORA", "r": 1, "lora_alpha": 2, "bias": "none"} | config
    (folder / "adapter_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return folder


def pair(down: list[list[float]], up: list[list[float]]) -> dict[str, list[list[float]]]:
    key = "base_model.model.model.layers.0.self_attn.q_proj"
    return {f"{key}.lora_A.weight": down, f"{key}.lora_B.weight": up}


def test_the_scaled_product_is_added_to_the_weight(tmp_path: Path) -> None:
    adapter = Adapter(write_adapter(tmp_path / "a", pair([[1, 2, 3]], [[1], [10]]), lora_alpha=4))
    merged = adapter.merge(Q, np.array([[0.5, 0.5, 0.5], [1, 1, 1]], dtype=BF16))
    assert merged.dtype == BF16
    assert merged.astype(float).tolist() == [[4.5, 8.5, 12.5], [41, 81, 121]]


def test_a_weight_that_the_adapter_leaves_alone_is_the_same_array(adapter_folder: Path) -> None:
    weight = np.ones((2, 2), dtype=BF16)
    assert Adapter(adapter_folder).merge("model.embed_tokens.weight", weight) is weight


def test_the_sum_is_rounded_once_and_not_on_the_way(tmp_path: Path) -> None:
    # In bfloat16 steps 256 + 1 is 256 each time; the exact sum 258 can be told apart.
    adapter = Adapter(write_adapter(tmp_path / "a", pair([[1], [1]], [[1, 1]]), r=2))
    assert float(adapter.merge(Q, np.array([[256]], dtype=BF16))[0, 0]) == 258


def test_a_change_of_scale_by_rank_or_other_layouts_is_refused(tmp_path: Path) -> None:
    for option in ({"use_rslora": True}, {"use_dora": True}, {"fan_in_fan_out": True}, {"bias": "all"}):
        folder = write_adapter(tmp_path / "a", pair([[1]], [[1]]), **option)
        with pytest.raises(AdapterError, match=next(iter(option))):
            Adapter(folder)


def test_half_a_pair_is_refused(tmp_path: Path) -> None:
    tensors = pair([[1]], [[1]])
    first, second = sorted(tensors)
    for kept in (first, second):
        with pytest.raises(AdapterError, match=r"pair|lora_B"):
            Adapter(write_adapter(tmp_path / "a", {kept: tensors[kept]}))


def test_a_weight_of_another_shape_is_refused(tmp_path: Path) -> None:
    adapter = Adapter(write_adapter(tmp_path / "a", pair([[1, 2]], [[1]])))
    with pytest.raises(AdapterError, match=r"q_proj\.weight has shape"):
        adapter.merge(Q, np.ones((1, 3), dtype=BF16))


def test_a_damaged_file_is_refused(adapter_folder: Path) -> None:
    path = adapter_folder / "adapter_model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(AdapterError, match=r"adapter_model\.safetensors"):
        Adapter(adapter_folder)
