"""Which arithmetic the engine uses."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import TYPE_CHECKING

from copydesk.common.telemetry import get_logger
from copydesk.inference.engine.native.errors import InvalidOptionError
from copydesk.inference.quantisation.scheme import Quantisation, Scheme

if TYPE_CHECKING:
    import torch

_log = get_logger(__name__)
CPUINFO = Path("/proc/cpuinfo")


class Precision(enum.StrEnum):
    """What is computed in.

    `AUTO`: `INT8` on a CPU with kernels for it; `FP8` on a GPU that has it, of a checkpoint in FP8; else bfloat16
    where that is fast, else float32. `FP8` on a CPU is emulated in float32, to judge the answers of such a GPU.
    """

    AUTO = "auto"
    FP8 = "fp8"
    INT8 = "int8"
    BFLOAT16 = "bfloat16"
    FLOAT32 = "float32"


_FIRST_WITH_FP8 = (8, 9)  # compute capability
_BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16"})


def torch_dtype(precision: Precision, device: torch.device, cpuinfo: Path = CPUINFO) -> torch.dtype:
    """Resolve what torch computes in; without `cpuinfo` (not Linux) a processor counts as one without bfloat16."""
    import torch

    match precision:
        case Precision.FLOAT32:
            return torch.float32
        case Precision.FP8 if device.type == "cpu":
            return torch.float32
        case Precision.BFLOAT16:
            return torch.bfloat16
        case _:
            fast = device.type != "cpu" or (cpuinfo.is_file() and multiplies_bfloat16(cpuinfo.read_text()))
            return torch.bfloat16 if fast else torch.float32


def computes_fp8(precision: Precision, device: torch.device, quantisation: Quantisation | None) -> bool:
    """Whether torch's layers round activations to FP8, or take a quantised weight for what it stands for.

    Raises:
        InvalidOptionError: FP8 is asked for, but the checkpoint is not in FP8, or the GPU has none.
    """
    stored = quantisation is not None and quantisation.scheme is Scheme.FP8
    able = device.type == "cpu" or has_fp8(device)
    if precision is Precision.AUTO and stored and not able:
        _log.warning(
            "gpu_has_no_fp8", device=str(device), computes="what the weights in FP8 stand for, in bfloat16"
        )
    if precision is not Precision.FP8:
        return precision is Precision.AUTO and device.type != "cpu" and stored and able
    if not stored:
        found = "not quantised" if quantisation is None else f"in {quantisation.scheme}"
        expected = f"another: this checkpoint is {found}; `copydesk model quantize` makes one in FP8"
        raise InvalidOptionError("precision", "fp8", expected)
    if not able:
        raise InvalidOptionError("precision", "fp8", f"auto or bfloat16: {device} does not multiply in FP8")
    return True


def has_fp8(device: torch.device) -> bool:
    """Whether a GPU multiplies in FP8: of NVIDIA's those from Ada and Hopper on do."""
    import torch

    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= _FIRST_WITH_FP8


def multiplies_bfloat16(cpuinfo: str) -> bool:
    """Whether the text of /proc/cpuinfo lists bfloat16 instructions for its first processor."""
    return not _BF16_FLAGS.isdisjoint(_flags(cpuinfo))


def _flags(cpuinfo: str) -> list[str]:
    return next((line for line in cpuinfo.splitlines() if line.startswith("flags")), "").split()
