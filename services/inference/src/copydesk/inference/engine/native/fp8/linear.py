"""Linear maps in FP8, with what comes before them drawn in: a norm or an activation leaves rounded rows."""

from __future__ import annotations

import torch

from copydesk.inference.engine.native.fp8.choice import Fp8Arithmetic
from copydesk.inference.engine.native.fp8.kernels import Rows


class Fp8Linear:
    """`x @ weight.T + bias` of rounded rows; weight [N, K] is float8_e4m3fn, its scales float32, [N, 1] or [1]."""

    def __init__(
        self,
        arithmetic: Fp8Arithmetic,
        weight: torch.Tensor,
        scale: torch.Tensor,
        bias: torch.Tensor | None = None,
    ) -> None:
        self.kernels = arithmetic.kernels
        self._multiply = arithmetic.multiply(weight, scale, bias)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Round [tokens, inputs], then multiply."""
        return self._multiply(self.kernels.quantise(x))

    def of(self, rows: Rows) -> torch.Tensor:
        """Multiply rows that are rounded already."""
        return self._multiply(rows)


class Fp8Normed:
    """An RMS norm, then a map: both read the residual stream once, and write it rounded."""

    def __init__(self, norm: torch.Tensor, epsilon: float, linear: Fp8Linear) -> None:
        self._norm, self._epsilon = norm, epsilon
        self._linear = linear

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Apply both to [tokens, inputs]."""
        return self._linear.of(self._linear.kernels.norm_quantise(x, self._norm, self._epsilon))


class Fp8Gated:
    """`silu(gate) * up` of [tokens, 2 * inputs], then a map."""

    def __init__(self, linear: Fp8Linear) -> None:
        self._linear = linear

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Apply both."""
        return self._linear.of(self._linear.kernels.gate_quantise(x))
