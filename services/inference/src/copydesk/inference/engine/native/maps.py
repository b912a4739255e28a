"""From the weights of a checkpoint to the maps of a layer, in the arithmetic that the engine computes in.

Query, key and value matrices become one, and so do gate and up: fewer, larger products. Where a checkpoint keeps
some of them in higher precision, those are a product of their own; different scales are no hindrance, since in one
product each output has its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from copydesk.inference.engine.native.checkpoint import QuantisedWeight
from copydesk.inference.engine.native.fp8.choice import Fp8Arithmetic
from copydesk.inference.engine.native.fp8.linear import Fp8Gated, Fp8Linear, Fp8Normed
from copydesk.inference.engine.native.linear import (
    Chain,
    Gate,
    Linear,
    PackedGate,
    PackedLinear,
    PlainLinear,
    RmsNorm,
    SideBySide,
)


@dataclass(frozen=True, slots=True)
class Part:
    """One matrix of a checkpoint, [outputs, inputs], and its bias."""

    weight: torch.Tensor | QuantisedWeight
    bias: torch.Tensor | None = None


class Maps:
    """Makes maps. `dtype` is of all that is not in FP8; `packed` says to lay out plain weights for oneDNN.

    `refused` collects the shapes of weights that are not multiplied in FP8 here, and had to be multiplied out.
    """

    def __init__(self, dtype: torch.dtype, *, packed: bool, fp8: Fp8Arithmetic | None) -> None:
        self.packed = packed
        self.refused: set[tuple[int, ...]] = set()
        self._dtype = dtype
        self._fp8 = fp8

    def linear(self, parts: Sequence[Part]) -> Linear:
        """Return the map to all parts' outputs, one after the other."""
        groups: list[list[Part]] = []
        for part in parts:
            if groups and self._stays(groups[-1][0]) == self._stays(part):
                groups[-1].append(part)
            else:
                groups.append([part])
        maps = [self._fp8_linear(group) or self._plain_linear(group) for group in groups]
        return maps[0] if len(maps) == 1 else SideBySide(*maps)

    def normed(self, norm: torch.Tensor, epsilon: float, parts: Sequence[Part]) -> Linear:
        """Return an RMS norm, then the map to all parts' outputs."""
        linear = self.linear(parts)
        if isinstance(linear, Fp8Linear):
            return Fp8Normed(norm, epsilon, linear)
        return Chain(RmsNorm(norm, epsilon), linear)

    def mlp(self, norm: torch.Tensor, epsilon: float, gate: Part, up: Part, down: Part) -> Linear:
        """Return `down(silu(gate(n)) * up(n))` of what an RMS norm makes of its input."""
        back = self.linear([down])
        if self.packed and not (self._stays(gate) or self._stays(up)):
            plain = PackedGate(self._plain(gate), self._plain(up), gate.bias, up.bias)
            return Chain(RmsNorm(norm, epsilon), plain, back)
        there = self.normed(norm, epsilon, [gate, up])
        if isinstance(back, Fp8Linear):
            return Chain(there, Fp8Gated(back))
        return Chain(there, Gate(), back)

    def _stays(self, part: Part) -> bool:
        """Whether the weight is computed with in FP8, as it is stored."""
        if self._fp8 is None or not isinstance(part.weight, QuantisedWeight):
            return False
        if part.weight.values.dtype != torch.float8_e4m3fn:
            return False
        outputs, inputs = part.weight.values.shape
        if self._fp8.takes(outputs, inputs):
            return True
        self.refused.add((outputs, inputs))
        return False

    def _fp8_linear(self, parts: Sequence[Part]) -> Fp8Linear | None:
        weights = [part.weight for part in parts if isinstance(part.weight, QuantisedWeight)]
        if self._fp8 is None or not self._stays(parts[0]):
            return None
        if len(weights) == 1:
            values, scale = weights[0].values, weights[0].scale
        else:
            values = torch.cat([weight.values.view(torch.uint8) for weight in weights]).view(torch.float8_e4m3fn)
            scale = torch.cat([weight.scale.reshape(-1).expand(weight.values.shape[0]) for weight in weights])
        return Fp8Linear(self._fp8, values, scale, _bias(parts))

    def _plain_linear(self, parts: Sequence[Part]) -> Linear:
        weights = [self._plain(part) for part in parts]
        weight = weights[0] if len(weights) == 1 else torch.cat(weights)
        if self.packed:
            return PackedLinear(weight, _bias(parts))
        return PlainLinear(weight, _bias(parts))

    def _plain(self, part: Part) -> torch.Tensor:
        weight = part.weight
        return weight if isinstance(weight, torch.Tensor) else weight.dequantised(self._dtype)


def _bias(parts: Sequence[Part]) -> torch.Tensor | None:
    biases = [part.bias for part in parts if part.bias is not None]
    if not biases:
        return None
    return biases[0] if len(biases) == 1 else torch.cat(biases)
