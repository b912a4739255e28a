"""Which arithmetic the engine uses."""

from __future__ import annotations

import enum
from pathlib import Path

import torch


class Precision(enum.StrEnum):
    """`AUTO` is bfloat16 where the processor multiplies it faster than float32, and float32 elsewhere."""

    AUTO = "auto"
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"


_BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16"})


def torch_dtype(precision: Precision, device: torch.device, cpuinfo: Path = Path("/proc/cpuinfo")) -> torch.dtype:
    """Resolve `AUTO` for `device`; without `cpuinfo` (not Linux) a processor counts as one without bfloat16."""
    match precision:
        case Precision.FLOAT32:
            return torch.float32
        case Precision.BFLOAT16:
            return torch.bfloat16
        case Precision.AUTO:
            fast = device.type != "cpu" or (cpuinfo.is_file() and multiplies_bfloat16(cpuinfo.read_text()))
            return torch.bfloat16 if fast else torch.float32


def multiplies_bfloat16(cpuinfo: str) -> bool:
    """Whether the text of /proc/cpuinfo lists bfloat16 instructions for its first processor."""
    flags = next((line for line in cpuinfo.splitlines() if line.startswith("flags")), "")
    return not _BF16_FLAGS.isdisjoint(flags.split())
