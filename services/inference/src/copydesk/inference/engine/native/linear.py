"""Linear maps, plain and prepacked.

oneDNN wants bfloat16 weights in blocks and would rearrange a plain matrix on every call, which at few tokens
costs as much as the product; prepacked ones are rearranged once, and take the activation into the same pass.
In float32 packing gains nothing.
"""

from __future__ import annotations

from typing import Protocol

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name

_PACKED_FOR_TOKENS = 64  # a hint to oneDNN; measured to serve 1 to 256 tokens about equally well


class Linear(Protocol):
    """A map over the last dimension: [tokens, inputs] to [tokens, outputs]."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Apply the map."""
        ...


class Chain:
    """Maps one after the other: the output of each is the input of the next."""

    def __init__(self, *maps: Linear) -> None:
        self._maps = maps

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Apply the maps."""
        for each in self._maps:
            x = each(x)
        return x


class RmsNorm:
    """`x / rms(x) * weight` over the last dimension (Zhang and Sennrich, arXiv 1910.07467)."""

    def __init__(self, weight: torch.Tensor, epsilon: float) -> None:
        self._weight = weight
        self._shape = tuple(weight.shape)
        self._epsilon = epsilon

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Apply the norm."""
        return F.rms_norm(x, self._shape, self._weight, self._epsilon)


class PlainLinear:
    """`x @ weight.T + bias`, with weight [outputs, inputs]."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        self._weight = weight
        self._bias = bias

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Apply the map."""
        return F.linear(x, self._weight, self._bias)


class SideBySide:
    """Several maps of the same input, their outputs one after the other."""

    def __init__(self, *maps: Linear) -> None:
        self._maps = maps

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Apply the maps."""
        return torch.cat([each(x) for each in self._maps], -1)


class Gate:
    """`silu(gate) * up` of both side by side: [tokens, 2 * outputs] to [tokens, outputs]."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Apply the activation."""
        gate, up = x.chunk(2, -1)
        return F.silu(gate) * up


class PackedLinear:
    """The same as `PlainLinear` over weights in oneDNN's layout."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        self._weight = _pack(weight)
        self._bias = bias

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Apply the map."""
        y: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, self._weight, self._bias, "none", [], "")
        return y


class PackedGate:
    """Gate and up, then `Gate`: its activation and product done inside the two matrix products."""

    def __init__(
        self, gate: torch.Tensor, up: torch.Tensor, gate_bias: torch.Tensor | None, up_bias: torch.Tensor | None
    ) -> None:
        self._gate, self._up = _pack(gate), _pack(up)
        self._gate_bias, self._up_bias = gate_bias, up_bias

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Apply the map."""
        ops = torch.ops.mkldnn
        gate = ops._linear_pointwise(x, self._gate, self._gate_bias, "swish", [], "")
        y: torch.Tensor = ops._linear_pointwise.binary(x, gate, self._up, self._up_bias, "mul")
        return y


def can_pack(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether prepacked layers run here, and pay."""
    return (
        dtype == torch.bfloat16
        and device.type == "cpu"
        and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    )


def _pack(weight: torch.Tensor) -> torch.Tensor:
    packed: torch.Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, _PACKED_FOR_TOKENS)
    return packed
