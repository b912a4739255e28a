"""Rows rounded to FP8 by one Triton kernel each, which reads every number once, and writes it once, as a byte.

Triton comes with the builds of torch for CUDA (https://triton-lang.org). A kernel is compiled for each number of
columns when it first runs, so that what captures graphs runs everything once before; the number of rows is no
reason to compile again. On a processor the kernels run in Triton's interpreter, for tests.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from copydesk.inference.engine.native.fp8.kernels import ROW_STEP, Rows, empty_rows

_WIDEST = 65_536  # columns of a row, all of which one program holds


@triton.jit
def _store_rounded(y, mask, values, scales, row, columns, offsets):  # type: ignore[no-untyped-def]
    """Scale a row of float32 numbers, zero outside of the mask, so that the largest is 448; round and store it.

    It is rounded to the nearest even number of the grid before it is converted, which then is exact: not every
    conversion rounds alike. Between powers of two the grid has eight steps; below 2^-6 it has the steps of 2^-6.
    """
    scale = tl.math.div_rn(tl.max(tl.abs(y), 0), 448.0)
    divisor = tl.where(scale == 0.0, 1.0, scale)
    scaled = tl.math.div_rn(y, tl.zeros_like(y) + divisor)
    scaled = tl.minimum(tl.maximum(scaled, -448.0), 448.0)
    power = (scaled.to(tl.int32, bitcast=True) & 0x7F800000).to(tl.float32, bitcast=True)
    shift = tl.maximum(power, 0.015625) * 1572864.0  # 1.5 * 2^20: the last bit of the sum is a step of the grid
    rounded = (scaled + shift) - shift
    tl.store(values + row * columns + offsets, rounded.to(values.dtype.element_ty), mask=mask)
    tl.store(scales + row, scale)


@triton.jit(do_not_specialize=["count"])  # type: ignore[untyped-decorator]
def _quantise(x, values, scales, count, columns, stride, block: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, block)
    mask = offsets < columns
    y = tl.load(x + row * stride + offsets, mask=offsets < tl.where(row < count, columns, 0), other=0.0)
    _store_rounded(y.to(tl.float32), mask, values, scales, row, columns, offsets)


@triton.jit(do_not_specialize=["count"])  # type: ignore[untyped-decorator]
def _norm_quantise(x, weight, values, scales, count, columns, stride, epsilon, block: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, block)
    mask = offsets < columns
    y = tl.load(x + row * stride + offsets, mask=offsets < tl.where(row < count, columns, 0), other=0.0)
    y = y.to(tl.float32)
    spread = 1.0 / tl.math.sqrt_rn(tl.sum(y * y, 0) / columns + epsilon)
    y = y * spread * tl.load(weight + offsets, mask=mask, other=0.0).to(tl.float32)
    _store_rounded(y, mask, values, scales, row, columns, offsets)


@triton.jit(do_not_specialize=["count"])  # type: ignore[untyped-decorator]
def _gate_quantise(x, values, scales, count, columns, stride, block: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, block)
    mask = offsets < columns
    present = offsets < tl.where(row < count, columns, 0)
    gate = tl.load(x + row * stride + offsets, mask=present, other=0.0).to(tl.float32)
    up = tl.load(x + row * stride + columns + offsets, mask=present, other=0.0).to(tl.float32)
    small = tl.exp(-tl.abs(gate))  # which never overflows
    sigmoid = tl.where(gate >= 0.0, 1.0, small) / (1.0 + small)
    _store_rounded(gate * sigmoid * up, mask, values, scales, row, columns, offsets)


class TritonKernels:
    """One kernel for each of what `RowKernels` says; rows are padded to sixteens with zeros.

    Triton launches on the current device, whichever the tensors are on, so that theirs is made the current one.
    """

    def quantise(self, x: torch.Tensor) -> Rows:
        """Round [count, K]."""
        rows, columns = self._room(x, x.shape[1])
        with torch.cuda.device_of(x):  # type: ignore[no-untyped-call]
            _quantise[(rows.values.shape[0],)](
                x, rows.values, rows.scale, rows.count, columns, x.stride(0), **_how(columns)
            )
        return rows

    def norm_quantise(self, x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> Rows:
        """Round the RMS norm of [count, K]."""
        rows, columns = self._room(x, x.shape[1])
        with torch.cuda.device_of(x):  # type: ignore[no-untyped-call]
            _norm_quantise[(rows.values.shape[0],)](
                x, weight, rows.values, rows.scale, rows.count, columns, x.stride(0), epsilon, **_how(columns)
            )
        return rows

    def gate_quantise(self, gate_up: torch.Tensor) -> Rows:
        """Round `silu(gate) * up` of [count, 2 K]."""
        rows, columns = self._room(gate_up, gate_up.shape[1] // 2)
        with torch.cuda.device_of(gate_up):  # type: ignore[no-untyped-call]
            _gate_quantise[(rows.values.shape[0],)](
                gate_up, rows.values, rows.scale, rows.count, columns, gate_up.stride(0), **_how(columns)
            )
        return rows

    def _room(self, x: torch.Tensor, columns: int) -> tuple[Rows, int]:
        if x.stride(-1) != 1 or columns > _WIDEST:
            raise ValueError(f"rows must lie in one piece, of {_WIDEST} columns at the most: {tuple(x.shape)}")
        return empty_rows(x.shape[0], columns, ROW_STEP, x.device), columns


def _how(columns: int) -> dict[str, int]:
    """As many threads as have some eight numbers each to do."""
    block = triton.next_power_of_2(columns)
    return {"block": block, "num_warps": min(16, max(1, block // 256))}
