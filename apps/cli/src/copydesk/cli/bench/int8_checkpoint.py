"""The model as an INT8 checkpoint of the compressed-tensors kind, which vLLM reads.

Weights have one scale an output channel, symmetric; activations are quantised as they come, one scale a token;
the output layer stays as it is. Format: https://github.com/vllm-project/compressed-tensors, `int-quantized`.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_LIMIT = 127
_UNTOUCHED = ("lm_head", "embed_tokens", "norm")
_COPIED = (
    "tokenizer.json",
    "tokenizer_config.json",
    "generation_config.json",
    "chat_template.jinja",
    "copydesk.json",
)

QUANTISATION: dict[str, Any] = {
    "quant_method": "compressed-tensors",
    "format": "int-quantized",
    "quantization_status": "compressed",
    "kv_cache_scheme": None,
    "ignore": ["lm_head"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {
                "num_bits": 8,
                "type": "int",
                "symmetric": True,
                "strategy": "channel",
                "dynamic": False,
            },
            "input_activations": {
                "num_bits": 8,
                "type": "int",
                "symmetric": True,
                "strategy": "token",
                "dynamic": True,
            },
        }
    },
}


def quantise(weight: NDArray[Any]) -> tuple[NDArray[np.int8], NDArray[Any]]:
    """Return the weight [out, in] in 8 bits and its scales [out, 1] in bfloat16.

    The scale is rounded to bfloat16 before the weight is divided by it, so that what is read back fits.
    """
    import ml_dtypes

    exact = weight.astype(np.float32)
    scale = (np.abs(exact).max(axis=1, keepdims=True) / _LIMIT).astype(ml_dtypes.bfloat16)
    divisor = np.where(scale == 0, 1, scale).astype(np.float32)
    return np.clip(np.rint(exact / divisor), -_LIMIT, _LIMIT).astype(np.int8), scale


def write_int8_checkpoint(source: Path, target: Path) -> None:
    """Write the model of `source` (safetensors, one file) in 8 bits into the empty directory `target`."""
    from safetensors.numpy import save

    tensors: dict[str, NDArray[Any]] = {}
    for name, weight in read_weights(source).items():
        if weight.ndim != 2 or any(part in name for part in _UNTOUCHED):
            tensors[name] = weight
            continue
        tensors[name], tensors[f"{name}_scale"] = quantise(weight)
    config = json.loads((source / "config.json").read_text())
    config["quantization_config"] = QUANTISATION
    (target / "config.json").write_text(json.dumps(config, indent=2))
    (target / "model.safetensors").write_bytes(save(tensors, metadata={"format": "pt"}))
    for name in _COPIED:
        if (source / name).exists():
            shutil.copyfile(source / name, target / name)


def read_weights(source: Path) -> dict[str, NDArray[Any]]:
    """Return every tensor of a directory with one safetensors file; bfloat16 stays what it is."""
    import ml_dtypes

    raw = (source / "model.safetensors").read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header: dict[str, Any] = json.loads(raw[8 : 8 + length])
    dtypes: dict[str, Any] = {"BF16": ml_dtypes.bfloat16, "F16": np.float16, "F32": np.float32}
    data = memoryview(raw)[8 + length :]
    return {
        name: np.frombuffer(data[slice(*entry["data_offsets"])], dtypes[entry["dtype"]]).reshape(entry["shape"])
        for name, entry in header.items()
        if name != "__metadata__"
    }
