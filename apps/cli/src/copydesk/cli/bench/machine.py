"""What a run was made on: figures mean little without it."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import msgspec
import psutil

_TELLING = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "amx_int8", "amx_bf16")


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """The processor, its cores for this process, the instructions that matter here, and the system."""

    processor: str
    cores: int
    instructions: tuple[str, ...]
    memory_gib: float
    system: str
    python: str


def read_machine() -> Machine:
    """Look at this machine."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    model, flags = parse_cpuinfo(text)
    return Machine(
        processor=model or platform.processor(),
        cores=len(os.sched_getaffinity(0)),
        instructions=tuple(flag for flag in _TELLING if flag in flags),
        memory_gib=round(psutil.virtual_memory().total / 2**30, 1),
        system=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
    )


def parse_cpuinfo(text: str) -> tuple[str, frozenset[str]]:
    """Return the model and the flags of the first processor of /proc/cpuinfo."""
    fields = {
        name.strip(): value.strip()
        for name, colon, value in (line.partition(":") for line in text.split("\n\n")[0].splitlines())
        if colon
    }
    return fields.get("model name", ""), frozenset(fields.get("flags", "").split())
