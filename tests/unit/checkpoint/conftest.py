"""A tiny model in llama.cpp's format and an adapter for it."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.unit.checkpoint.tiny_gguf import HIDDEN, INTERMEDIATE, LAYERS, Weights, random_weights, write_gguf


@pytest.fixture
def weights() -> Weights:
    """Random weights under Hugging Face's names."""
    return random_weights()


@pytest.fixture
def gguf_path(tmp_path: Path, weights: Weights) -> Path:
    """Those weights in a GGUF file."""
    return write_gguf(tmp_path / "tiny.gguf", weights)


@pytest.fixture
def adapter_folder(tmp_path: Path) -> Path:
    """A LoRA adapter of rank 2 and scale 2 on every q_proj and down_proj, with template and limits beside it."""
    folder = tmp_path / "adapter"
    folder.mkdir()
    rng = np.random.default_rng(5)
    tensors = {}
    for layer in range(LAYERS):
        for name, rows, columns in (("self_attn.q_proj", HIDDEN, HIDDEN), ("mlp.down_proj", HIDDEN, INTERMEDIATE)):
            key = f"base_model.model.model.layers.{layer}.{name}"
            for part, shape in (("lora_A", (2, columns)), ("lora_B", (rows, 2))):
                tensors[f"{key}.{part}.weight"] = rng.standard_normal(shape).astype(ml_dtypes.bfloat16)
    save_file(tensors, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "bias": "none"}
    (folder / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "chat_template.jinja").write_text("{{ messages[-1].content }}", encoding="utf-8")
    (folder / "copydesk.json").write_text("{}", encoding="utf-8")
    return folder
