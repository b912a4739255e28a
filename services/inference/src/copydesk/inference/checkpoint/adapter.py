"""Merging a LoRA adapter in PEFT's format into the weights it was trained on.

Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models" (2021): `W' = W + alpha / r * B A`.
"""

from __future__ import annotations

import json
from importlib.resources.abc import Traversable
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, deserialize

from copydesk.inference.checkpoint.errors import AdapterError

_DTYPES: dict[str, Any] = {"BF16": ml_dtypes.bfloat16, "F16": np.float16, "F32": np.float32}
_PREFIX = "base_model.model."
_UNSUPPORTED = {
    "use_rslora": False,
    "use_dora": False,
    "fan_in_fan_out": False,
    "bias": "none",
    "peft_type": "LORA",
}


class Adapter:
    """The pairs of low-rank matrices by the name of the weight that they change.

    Raises:
        AdapterError: It is not a plain LoRA adapter, or its file is damaged.
    """

    def __init__(self, folder: Traversable) -> None:
        self.folder = str(folder)
        config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
        for key, expected in _UNSUPPORTED.items():
            if config.get(key, expected) != expected:
                raise AdapterError(self.folder, f"{key} is {config[key]!r}, only {expected!r} is supported")
        self.scale = float(config["lora_alpha"]) / float(config["r"])
        self._pairs = self._read_pairs((folder / "adapter_model.safetensors").read_bytes())

    @property
    def targets(self) -> frozenset[str]:
        """The names of the weights it changes."""
        return frozenset(self._pairs)

    def merge(self, name: str, weight: NDArray[Any]) -> NDArray[Any]:
        """Return `weight` (bfloat16) with the adapter's change, or as it is when the adapter leaves it alone.

        The sum is made in float64. There it is exact but for the last rounding to bfloat16, so that every
        machine gets the same bits whatever order its BLAS adds in, and one digest names the model everywhere.
        """
        if name not in self._pairs:
            return weight
        down, up = self._pairs[name]
        if weight.shape != (up.shape[0], down.shape[1]):
            raise AdapterError(
                self.folder, f"{name} has shape {weight.shape}, expected {(len(up), down.shape[1])}"
            )
        change = self.scale * (up.astype(np.float64) @ down.astype(np.float64))
        return (weight.astype(np.float64) + change).astype(np.float32).astype(ml_dtypes.bfloat16)

    def _read_pairs(self, content: bytes) -> dict[str, tuple[NDArray[Any], NDArray[Any]]]:
        try:
            tensors = {name: _array(entry) for name, entry in deserialize(content)}  # type: ignore[no-untyped-call]
        except (SafetensorError, KeyError) as error:
            raise AdapterError(self.folder, f"adapter_model.safetensors: {error}") from error
        pairs = {}
        for key in [key for key in tensors if key.endswith(".lora_A.weight")]:
            name = key.removeprefix(_PREFIX).removesuffix(".lora_A.weight") + ".weight"
            down, up = tensors.pop(key), tensors.pop(key.replace(".lora_A.", ".lora_B."), None)
            if up is None or up.shape[1] != down.shape[0]:
                raise AdapterError(self.folder, f"{key} has no matching lora_B")
            pairs[name] = (down, up)
        if tensors:
            raise AdapterError(
                self.folder, f"{len(tensors)} tensors are no part of a LoRA pair: {min(tensors)}, ..."
            )
        return pairs


def _array(entry: dict[str, Any]) -> NDArray[Any]:
    """One tensor; `safetensors.numpy` itself does not read bfloat16."""
    return np.frombuffer(entry["data"], dtype=_DTYPES[entry["dtype"]]).reshape(entry["shape"])
