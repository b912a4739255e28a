"""Low-rank adapters on a Llama decoder, and their file in PEFT's format."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name that torch's own documentation gives it
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

_TARGETS = {
    "self_attn": ("q_proj", "k_proj", "v_proj", "o_proj"),
    "mlp": ("gate_proj", "up_proj", "down_proj"),
}
_BASE_NAME = "HuggingFaceTB/SmolLM2-135M-Instruct"


class LoraLinear(nn.Module):
    """A frozen linear layer plus `alpha / rank * B A`, with A and B in float32."""

    def __init__(self, linear: nn.Linear, rank: int, alpha: int) -> None:
        super().__init__()
        self.weight, self.scale = linear.weight, alpha / rank
        self.A = nn.Parameter(torch.empty(rank, linear.in_features))
        self.B = nn.Parameter(torch.zeros(linear.out_features, rank))
        nn.init.kaiming_uniform_(self.A, a=math.sqrt(5))

    def forward(self, x: Tensor) -> Tensor:
        """The layer's output."""
        flat = x.reshape(-1, x.shape[-1])
        low = F.linear(flat, (self.A * self.scale).to(x.dtype))
        out = torch.addmm(F.linear(flat, self.weight), low, self.B.to(x.dtype).t())
        return out.view(*x.shape[:-1], -1)


def add_adapter(model: Any, rank: int, alpha: int) -> dict[str, nn.Parameter]:
    """Put an adapter on every linear layer, freeze the rest, and return the parameters by PEFT's names."""
    model.requires_grad_(False)
    named = {}
    for index, layer in enumerate(model.model.layers):
        for block, names in _TARGETS.items():
            for name in names:
                module = getattr(layer, block)
                adapted = LoraLinear(getattr(module, name), rank, alpha)
                setattr(module, name, adapted)
                key = f"base_model.model.model.layers.{index}.{block}.{name}"
                named[f"{key}.lora_A.weight"], named[f"{key}.lora_B.weight"] = adapted.A, adapted.B
    return named


def load_adapter(named: Mapping[str, nn.Parameter], folder: Path) -> None:
    """Go on from an adapter that was saved."""
    saved = load_file(folder / "adapter_model.safetensors")
    for key, parameter in named.items():
        parameter.data.copy_(saved[key])


def save_adapter(named: Mapping[str, nn.Parameter], folder: Path, rank: int, alpha: int) -> None:
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
        "target_modules": sorted(name for names in _TARGETS.values() for name in names),
        "init_lora_weights": True,
    }
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
