"""An adapter's file in PEFT's format."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

_TARGETS = ("down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj")
_BASE_NAME = "HuggingFaceTB/SmolLM2-135M-Instruct"


def load_adapter(named: Mapping[str, Tensor], folder: Path) -> None:
    """Go on from an adapter that was saved."""
    saved = load_file(folder / "adapter_model.safetensors")
    for key, value in named.items():
        value.data.copy_(saved[key])


def save_adapter(named: Mapping[str, Tensor], folder: Path, rank: int, alpha: int) -> None:
    """Write it in bfloat16; a file that is there already is replaced at once, whole."""
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / ".partial.safetensors"
    tensors = {key: value.detach().to(torch.bfloat16).contiguous().clone() for key, value in named.items()}
    save_file(tensors, partial, metadata={"format": "pt"})
    partial.replace(folder / "adapter_model.safetensors")
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": _BASE_NAME,
        "r": rank,
        "lora_alpha": alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "inference_mode": True,
        "fan_in_fan_out": False,
        "use_rslora": False,
        "use_dora": False,
        "target_modules": list(_TARGETS),
        "init_lora_weights": True,
    }
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
