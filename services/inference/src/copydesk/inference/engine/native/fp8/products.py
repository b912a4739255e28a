"""Matrix products of rows and weights in FP8, with a scale for each row and each output.

Weights stay [outputs, inputs] in memory, which to `torch._scaled_mm` is a matrix by columns, as it must be.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name

from copydesk.inference.engine.native.fp8.kernels import SCALE_STEP, Rows


class Product(StrEnum):
    """How rows are multiplied.

    `ROWWISE`: the hardware multiplies, and scales rows and outputs as it stores them. `TENSORWISE`: the hardware
    multiplies with one scale for all, and rows and outputs are scaled behind it; for GPUs and builds of torch
    without the first. `EMULATED`: float32 products of the same rounded numbers, on a processor.
    """

    ROWWISE = "rowwise"
    TENSORWISE = "tensorwise"
    EMULATED = "emulated"


class Multiply(Protocol):
    """Multiplies rows with the weight that it was made for."""

    def __call__(self, rows: Rows) -> torch.Tensor:
        """Return [rows.count, outputs]."""
        ...


class Rowwise:
    """`ROWWISE`; the answer is bfloat16."""

    def __init__(self, weight: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor | None) -> None:
        self._weight = weight.contiguous().t()
        outputs = scale.numel()
        self._scale = F.pad(scale, (0, -outputs % SCALE_STEP)).view(1, -1)[:, :outputs]
        self._bias = None if bias is None else bias.bfloat16()

    def __call__(self, rows: Rows) -> torch.Tensor:
        """Return [rows.count, outputs]."""
        product: torch.Tensor = torch._scaled_mm(
            rows.values,
            self._weight,
            scale_a=rows.scale,
            scale_b=self._scale,
            bias=self._bias,
            out_dtype=torch.bfloat16,
            use_fast_accum=True,
        )
        return product[: rows.count]


class Tensorwise:
    """`TENSORWISE`; sums leave the product as float32, and the answer is bfloat16.

    A weight with one scale has it applied by the product; of one with more, all are applied behind it.
    """

    def __init__(self, weight: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor | None) -> None:
        self._weight = weight.contiguous().t()
        self._one = torch.ones((), dtype=torch.float32, device=weight.device)
        single = scale.numel() == 1
        self._inside = scale.reshape(()).contiguous() if single else self._one
        self._behind = None if single else scale.view(1, -1).contiguous()
        self._bias = None if bias is None else bias.float()

    def __call__(self, rows: Rows) -> torch.Tensor:
        """Return [rows.count, outputs]."""
        sums: torch.Tensor = torch._scaled_mm(
            rows.values,
            self._weight,
            scale_a=self._one,
            scale_b=self._inside,
            out_dtype=torch.float32,
            use_fast_accum=True,
        )
        product = sums[: rows.count].mul_(rows.scale[: rows.count])
        if self._behind is not None:
            product.mul_(self._behind)
        if self._bias is not None:
            product.add_(self._bias)
        return product.bfloat16()


class Emulated:
    """`EMULATED`; the answer is float32. The weight is held in float32, four times as large as it is stored."""

    def __init__(self, weight: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor | None) -> None:
        self._weight = weight.float()
        self._scale = scale.view(1, -1)
        self._bias = None if bias is None else bias.float()

    def __call__(self, rows: Rows) -> torch.Tensor:
        """Return [rows.count, outputs]."""
        product = F.linear(rows.values[: rows.count].float(), self._weight)
        product.mul_(rows.scale[: rows.count]).mul_(self._scale)
        return product if self._bias is None else product.add_(self._bias)


PRODUCTS: dict[Product, type[Rowwise] | type[Tensorwise] | type[Emulated]] = {
    Product.ROWWISE: Rowwise,
    Product.TENSORWISE: Tensorwise,
    Product.EMULATED: Emulated,
}
