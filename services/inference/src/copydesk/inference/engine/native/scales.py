"""Which tensors of a checkpoint are in 8 bits, and what must hold of their scales: the same for both readers.

Types are called as in safetensors' headers. A scale is one number for each output of a weight [N, 1], or one for
all of it [1]; what a checkpoint holds beside weights and scales (zero points, static scales) it was not quantised
without, so that it is refused rather than ignored.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from copydesk.inference.engine.native.errors import MissingTensorError, TensorMismatchError
from copydesk.inference.quantisation.scheme import Quantisation, Scheme, WeightScale

FLOATS = ("F32", "BF16", "F16")
WEIGHT = ".weight"
SCALE = ".weight_scale"
LINEAR_MODULES = (
    *(f"self_attn.{name}_proj" for name in "qkvo"),
    *(f"mlp.{name}_proj" for name in ("gate", "up", "down")),
)
_STORED = {Scheme.FP8: "F8_E4M3", Scheme.INT8: "I8"}
_SCALE_TYPES = ("F32", "BF16")
_OTHERS = ("weight_zero_point", "weight_g_idx", "weight_packed", "input_scale", "output_scale")
_NOT_SERVED = tuple(f".{tensor}" for tensor in (*_OTHERS, "q_scale", "k_scale", "v_scale"))


def kept_modules(quantisation: Quantisation | None, layers: int) -> list[str]:
    """Return the linear modules of the layers that a quantised checkpoint keeps in higher precision."""
    if quantisation is None:
        return []
    modules = [f"model.layers.{layer}.{module}" for layer in range(layers) for module in LINEAR_MODULES]
    return [module for module in modules if not quantisation.quantises(module)]


def weight_type(quantisation: Quantisation | None, module: str) -> str | None:
    """Return the type that the weight of a linear module must have, None for any of `FLOATS`."""
    if quantisation is None or not quantisation.quantises(module):
        return None
    return _STORED[quantisation.scheme]


def scale_shape(quantisation: Quantisation, rows: int) -> tuple[int, ...]:
    """Return the shape of the scale of a weight of so many rows."""
    return (1,) if quantisation.weight_scale is WeightScale.TENSOR else (rows, 1)


def check_names(types: Mapping[str, str], quantisation: Quantisation | None) -> None:
    """Check that weights and scales belong together, of all tensors' types by name.

    Raises:
        MissingTensorError: a weight in 8 bits has no scale.
        TensorMismatchError: a scale has no weight in 8 bits, or a tensor is of a quantisation that is not served.
    """
    for name, type_ in types.items():
        module = name.removesuffix(WEIGHT)
        if module != name and type_ in _STORED.values() and module + SCALE not in types:
            raise MissingTensorError(module + SCALE)
        if name.endswith(SCALE):
            _check_has_weight(name, types)
        if quantisation is not None and name.endswith(_NOT_SERVED):
            raise TensorMismatchError(name, "of a quantisation that is not served", "weights and scales alone")


def _check_has_weight(name: str, types: Mapping[str, str]) -> None:
    weight = name.removesuffix(SCALE) + WEIGHT
    if types.get(weight) not in _STORED.values():
        found = f"of type {types[weight]}" if weight in types else "missing"
        raise TensorMismatchError(
            name, f"a scale, while {weight} is {found}", "no scale without a weight in 8 bits"
        )


def check_weight_type(name: str, found: str, expected: str | None) -> None:
    """Raises `TensorMismatchError`: the weight is not stored as `config.json` says."""
    if expected is None and found not in FLOATS:
        raise TensorMismatchError(name, f"of type {found}", "float32, bfloat16 or float16")
    if expected is not None and found != expected:
        raise TensorMismatchError(name, f"of type {found}", f"{expected}, as quantization_config says")


def check_scale_type(name: str, found: str) -> None:
    """Raises `TensorMismatchError`."""
    if found not in _SCALE_TYPES:
        raise TensorMismatchError(name, f"of type {found}", "float32 or bfloat16")


def check_scale(name: str, scale: NDArray[np.float32], empty: NDArray[np.bool_]) -> None:
    """Check that every scale is above zero; zero is allowed where the weights are zeros too, as `empty` says.

    Raises:
        TensorMismatchError: one is not.
    """
    flat = scale.reshape(-1)
    good = np.isfinite(flat) & ((flat > 0) | ((flat == 0) & empty.reshape(-1)))
    if not good.all():
        row = int(np.flatnonzero(~good)[0])
        raise TensorMismatchError(name, f"{flat[row]} at row {row}", "finite and greater than zero")
