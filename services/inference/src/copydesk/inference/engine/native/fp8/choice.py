"""Which kernels and products a device is given: the best that compute there what the reference says.

Each is tried once at load, on a small case, since what runs depends on the GPU, the driver and the build of torch
alike; what fails, and why, is logged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from copydesk.common.telemetry import get_logger
from copydesk.inference.engine.native.fp8 import reference
from copydesk.inference.engine.native.fp8.kernels import ROW_STEP, RowKernels, TorchKernels, empty_rows
from copydesk.inference.engine.native.fp8.products import PRODUCTS, Multiply, Product

_log = get_logger(__name__)
_INPUTS, _OUTPUTS, _COUNT = 64, 32, 5
_STEP_OF_E4M3 = 0.125  # how far apart neighbours are, of themselves, at the most
_STEP_OF_BF16 = 0.01
_MOST_ROWS = 512  # shapes are refused for few rows; steps are hardly ever larger


@dataclass(frozen=True, slots=True)
class Fp8Arithmetic:
    """How a device computes FP8."""

    kernels: RowKernels
    product: Product
    _computed: dict[tuple[int, int, bool], bool] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def multiply(self, weight: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor | None) -> Multiply:
        """Return the product with a weight [N, K] in FP8, whose scales are [N] or [1].

        Row-wise it is tried at once with every number of rows that matters: cuBLAS has no algorithm for some
        shapes, for few rows of many columns on an H100 among them (pytorch/ao#4582). A weight that is refused is
        multiplied `TENSORWISE`.
        """
        made = _product(self.product, weight, scale, bias)
        if self.product is not Product.ROWWISE or self._computes(made, weight, biased=bias is not None):
            return made
        return _product(Product.TENSORWISE, weight, scale, bias)

    def takes(self, outputs: int, inputs: int) -> bool:
        """Whether it multiplies with a weight of this shape: hardware does by sixteens."""
        return self.product is Product.EMULATED or (outputs % 16 == 0 and inputs % 16 == 0)

    def _computes(self, product: Multiply, weight: torch.Tensor, *, biased: bool) -> bool:
        outputs, inputs = weight.shape
        case = outputs, inputs, biased
        if case not in self._computed:
            reason = _refusal(product, inputs, weight.device)
            self._computed[case] = reason is None
            if reason is not None:
                instead = Product.TENSORWISE.value
                _log.warning("fp8_shape_refused", outputs=outputs, inputs=inputs, reason=reason, computes=instead)
        return self._computed[case]


def _product(product: Product, weight: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor | None) -> Multiply:
    flat = scale.reshape(-1)
    return PRODUCTS[product](weight, flat if product is Product.TENSORWISE else flat.expand(weight.shape[0]), bias)


def _refusal(product: Multiply, inputs: int, device: torch.device) -> str | None:
    """Why a product cannot be had with some number of rows; None if it always can."""
    for count in range(ROW_STEP, _MOST_ROWS + 1, ROW_STEP):
        rows = empty_rows(count, inputs, ROW_STEP, device)
        rows.values.view(torch.uint8).zero_()
        rows.scale.zero_()
        try:
            product(rows)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            return f"{count} rows: {str(error).partition(chr(10))[0]}"
    return None


EMULATION = Fp8Arithmetic(TorchKernels(), Product.EMULATED)
"""FP8 on a processor: rounded as a GPU rounds, multiplied in float32. Slow, and good for judging answers."""


def choose_arithmetic(device: torch.device) -> Fp8Arithmetic | None:
    """Choose for a device, and log what was chosen; None where no product in FP8 runs."""
    if device.type == "cpu":
        _log.info("fp8_arithmetic", device=str(device), kernels="torch", product=Product.EMULATED.value)
        return EMULATION
    product = _choose_product(device)
    if product is None:
        return None
    kernels, name = _choose_kernels(device)
    _log.info("fp8_arithmetic", device=str(device), kernels=name, product=product.value)
    return Fp8Arithmetic(kernels, product)


def _choose_kernels(device: torch.device) -> tuple[RowKernels, str]:
    try:
        from copydesk.inference.engine.native.fp8.triton_kernels import TritonKernels
    except ImportError as error:
        _log.warning("fp8_kernels_missing", kernels="triton", reason=str(error))
        return TorchKernels(ROW_STEP), "torch"
    kernels = TritonKernels()
    if _holds("triton", lambda: kernels_error(kernels, device), _STEP_OF_E4M3):
        return kernels, "triton"
    return TorchKernels(ROW_STEP), "torch"


def _choose_product(device: torch.device) -> Product | None:
    for product in (Product.ROWWISE, Product.TENSORWISE):

        def error(product: Product = product) -> float:
            return product_error(product, device)

        if _holds(product.value, error, _STEP_OF_BF16):
            return product
    return None


def _holds(name: str, error: Callable[[], float], most: float) -> bool:
    try:
        found = error()
    except Exception as failure:  # whatever a compiler or a driver says: something else will do
        _log.warning("fp8_kernels_fail", kernels=name, reason=str(failure).partition("\n")[0])
        return False
    if found <= most:
        return True
    _log.warning("fp8_kernels_wrong", kernels=name, error=found, at_most=most)
    return False


def kernels_error(kernels: RowKernels, device: torch.device) -> float:
    """How far kernels are from the reference, in all three of their functions: of the largest number."""
    random = torch.Generator().manual_seed(0)
    x = torch.randn(_COUNT, 2 * _INPUTS, generator=random).bfloat16().to(device)
    weight = torch.rand(2 * _INPUTS, generator=random).bfloat16().to(device)
    cases = (
        (kernels.quantise(x), x.float()),
        (kernels.norm_quantise(x, weight, 1e-5), reference.norm(x, weight, 1e-5)),
        (kernels.gate_quantise(x), reference.gate(x)),
    )
    errors = []
    for rows, exact in cases:
        values, scale = reference.quantise(exact)
        found = rows.values[:_COUNT].float() * rows.scale[:_COUNT]
        errors.append(((found - values * scale).abs().max() / exact.abs().max()).item())
    return max(errors)


def product_error(product: Product, device: torch.device) -> float:
    """How far a product is from the reference, of the largest number."""
    random = torch.Generator().manual_seed(0)
    rows = TorchKernels(ROW_STEP).quantise(torch.randn(_COUNT, _INPUTS, generator=random).to(device))
    weight = torch.randn(_OUTPUTS, _INPUTS, generator=random).to(device, torch.float8_e4m3fn)
    scale = torch.rand(_OUTPUTS, generator=random).to(device)
    bias = torch.randn(_OUTPUTS, generator=random).to(device)
    found = PRODUCTS[product](weight, scale, bias)(rows).float()
    exact = reference.multiply(rows.values[:_COUNT].float(), rows.scale[:_COUNT], weight.float(), scale, bias)
    return ((found - exact).abs().max() / exact.abs().max()).item()
