"""Whether each FP8 kernel computes on this device what its reference says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch

from copydesk.inference.engine.native.fp8 import reference
from copydesk.inference.engine.native.fp8.kernels import ROW_STEP, RowKernels, Rows, TorchKernels
from copydesk.inference.engine.native.fp8.products import PRODUCTS, Product
from copydesk.inference.gpu_check.rows import Row

_PART = "kernels"
_STEP_OF_E4M3 = 1 / 16  # rounding to three bits is off by half of an eighth at most, and norms by a little more
_SLACK = 1.15
_BFLOAT16 = 1 / 128  # a product is rounded to eight bits once
_LOST_A_STEP = 2**-14  # of a sum, each time that Hopper adds 32 terms to it: it keeps 13 bits of it, cut off
_TERMS = 32
_EPSILON = 1e-5

_Sizes = Sequence[tuple[int, int]]
SIZES: _Sizes = ((1, 576), (5, 1536), (64, 576), (200, 2048), (33, 8192))
FEW_SIZES: _Sizes = ((1, 64), (5, 96))


def check_kernels(device: torch.device, *, quick: bool) -> Iterator[Row]:
    """Every kernel that is for this kind of device, at the sizes of real models."""
    sizes = FEW_SIZES if quick else SIZES
    for name, make in _kernels(device).items():
        for count, columns in sizes:
            yield from _guarded(
                f"{name} {count}x{columns}", partial(_row_kernels, make, name, count, columns, device)
            )
    products = [Product.EMULATED] if device.type == "cpu" else [Product.ROWWISE, Product.TENSORWISE]
    for product in products:
        for count, columns in sizes:
            found = _guarded(
                f"{product.value} {count}x{columns}", partial(_product, product, count, columns, device)
            )
            yield from map(_with_another, found) if product is Product.ROWWISE else found


def _with_another(row: Row) -> Row:
    """What is refused row-wise, the engine multiplies with one scale, which has a row of its own."""
    if row.ok is not False or row.value is not None:
        return row
    return Row(_PART, row.setting, note=f"refused, so that tensorwise is taken: {row.note}")


def _kernels(device: torch.device) -> dict[str, Callable[[], RowKernels]]:
    if device.type == "cpu":
        return {"torch": TorchKernels}
    return {"torch": partial(TorchKernels, ROW_STEP), "triton": _triton}


def _triton() -> RowKernels:
    from copydesk.inference.engine.native.fp8.triton_kernels import TritonKernels

    return TritonKernels()


def _guarded(setting: str, found: Callable[[], list[Row]]) -> list[Row]:
    """A kernel that does not run here is a finding, too."""
    try:
        return found()
    except Exception as error:
        reason = str(error).partition("\n")[0][:160]
        return [Row(_PART, setting, ok=False, note=f"{type(error).__name__}: {reason}")]


def _row_kernels(
    make: Callable[[], RowKernels], name: str, count: int, columns: int, device: torch.device
) -> list[Row]:
    kernels = make()
    random = torch.Generator().manual_seed(count)
    wide = torch.randn(count, 2 * columns, generator=random).bfloat16().to(device)
    narrow = wide[:, :columns].contiguous()
    weight = torch.rand(columns, generator=random).bfloat16().to(device)
    cases = {
        "quantise": (kernels.quantise(narrow), narrow.float()),
        "norm": (kernels.norm_quantise(narrow, weight, _EPSILON), reference.norm(narrow, weight, _EPSILON)),
        "gate": (kernels.gate_quantise(wide), reference.gate(wide)),
    }
    return [
        _row(f"{name} {case} {count}x{columns}", _rounding_error(rows, exact), _STEP_OF_E4M3 * _SLACK)
        for case, (rows, exact) in cases.items()
    ]


def _rounding_error(rows: Rows, exact: torch.Tensor) -> float:
    """How far a number is off, relative to itself; below the smallest normal one, to that."""
    found = rows.values[: rows.count].float() * rows.scale[: rows.count]
    smallest = exact.abs().amax(-1, keepdim=True) / reference.LIMIT * 2**-6
    error = (found - exact).abs() / torch.maximum(exact.abs(), smallest)
    return float(error.max())


def _product(product: Product, count: int, columns: int, device: torch.device) -> list[Row]:
    random = torch.Generator().manual_seed(count)
    outputs = 3 * columns // 2 // 16 * 16
    rows = TorchKernels(ROW_STEP).quantise(torch.randn(count, columns, generator=random).to(device))
    weight = torch.randn(outputs, columns, generator=random).to(device, torch.float8_e4m3fn)
    scale = (torch.rand(outputs, generator=random) + 0.5).to(device)
    found = PRODUCTS[product](weight, scale, None)(rows).float()
    exact = reference.multiply(rows.values[:count].float(), rows.scale[:count], weight.float(), scale)
    error = float((found - exact).abs().max() / exact.abs().max())
    return [_row(f"{product.value} {count}x{columns}", error, product_bar(columns))]


def product_bar(columns: int) -> float:
    """How far a product of so many columns may be off, of the largest number."""
    return _BFLOAT16 + columns / _TERMS * _LOST_A_STEP


def _row(setting: str, error: float, most: float) -> Row:
    return Row(
        _PART, setting, value=float(f"{error:.3g}"), unit="error", ok=error <= most, note=f"at most {most:.3g}"
    )
