"""Which arithmetic the engine uses."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

CPUINFO = Path("/proc/cpuinfo")


class Precision(enum.StrEnum):
    """`AUTO`: on a CPU that multiplies 8-bit integers, `INT8`; else bfloat16 where it is fast, else float32."""

    AUTO = "auto"
    INT8 = "int8"
    BFLOAT16 = "bfloat16"
    FLOAT32 = "float32"


_BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16"})
_INT8_FLAGS = frozenset({"avx512_vnni", "amx_int8"})


def prefers_int8(device: str, cpuinfo: Path = CPUINFO) -> bool:
    """Whether `AUTO` means 8-bit integers on this device: a CPU with instructions for them."""
    return device == "cpu" and cpuinfo.is_file() and multiplies_int8(cpuinfo.read_text())


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


def multiplies_int8(cpuinfo: str) -> bool:
    """Whether it lists instructions that multiply 8-bit integers."""
    return not _INT8_FLAGS.isdisjoint(_flags(cpuinfo))


def _flags(cpuinfo: str) -> list[str]:
    return next((line for line in cpuinfo.splitlines() if line.startswith("flags")), "").split()
