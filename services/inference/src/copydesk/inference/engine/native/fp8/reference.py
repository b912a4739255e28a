"""What every kernel computes, as plain functions in float32: they are what the kernels are tested against.

Rounded numbers are float32 here, on the grid of E4M3 (Micikevicius et al., "FP8 Formats for Deep Learning", 2022).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name

LIMIT = 448.0
"""The largest number of E4M3."""


def norm(x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    """Return `x / rms(x) * weight` of rows [M, K] (Zhang and Sennrich, arXiv 1910.07467)."""
    mean_square = x.float().square().mean(-1, keepdim=True)
    return x.float() * torch.rsqrt(mean_square + epsilon) * weight.float()


def gate(gate_up: torch.Tensor) -> torch.Tensor:
    """Return `silu(gate) * up` [M, K] of rows that hold both, [M, 2 K] (Shazeer, arXiv 2002.05202)."""
    gated, up = gate_up.float().chunk(2, -1)
    return F.silu(gated) * up


def quantise(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Round rows [M, K] to E4M3 with one scale each; return the rounded numbers and the scales [M, 1].

    A row's largest number becomes 448; a row of zeros has the scale zero.
    """
    scale = x.float().abs().amax(-1, keepdim=True) / LIMIT
    divisor = torch.where(scale == 0, 1.0, scale)
    values = (x.float() / divisor).clamp(-LIMIT, LIMIT).to(torch.float8_e4m3fn)
    return values.float(), scale


def multiply(
    values: torch.Tensor,
    scale: torch.Tensor,
    weight: torch.Tensor,
    weight_scale: torch.Tensor,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return rows [M, K] with scales [M, 1] times weight [N, K] with scales [N]; sums are exact to float64."""
    sums = values.double() @ weight.double().t()
    scaled = sums * scale.double() * weight_scale.double()
    return (scaled if bias is None else scaled + bias.double()).float()
