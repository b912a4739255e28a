"""Which arithmetic the engine uses."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

CPUINFO = Path("/proc/cpuinfo")


class Precision(enum.StrEnum):
    """`AUTO`: `INT8` on a CPU with kernels for it; else bfloat16 where that is fast, else float32."""

    AUTO = "auto"
    INT8 = "int8"
    BFLOAT16 = "bfloat16"
    FLOAT32 = "float32"


_BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16"})


def torch_dtype(precision: Precision, device: torch.device, cpuinfo: Path = CPUINFO) -> torch.dtype:
    """Resolve what torch computes in; without `cpuinfo` (not Linux) a processor counts as one without bfloat16."""
    import torch

    match precision:
        case Precision.FLOAT32:
            return torch.float32
        case Precision.BFLOAT16:
            return torch.bfloat16
        case _:
            fast = device.type != "cpu" or (cpuinfo.is_file() and multiplies_bfloat16(cpuinfo.read_text()))
            return torch.bfloat16 if fast else torch.float32


def multiplies_bfloat16(cpuinfo: str) -> bool:
    """Whether the text of /proc/cpuinfo lists bfloat16 instructions for its first processor."""
    return not _BF16_FLAGS.isdisjoint(_flags(cpuinfo))


def _flags(cpuinfo: str) -> list[str]:
    return next((line for line in cpuinfo.splitlines() if line.startswith("flags")), "").split()
