"""What a model takes of a machine's memory, about: its weights in each arithmetic, and its keys and values.

Estimates from the shape alone, for planning. The engine's packed weights come out to the byte but for what its
layout rounds up; what a process takes by itself was measured with the default model and rounded up.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from copydesk.common.errors import CopydeskError
from copydesk.inference.inspection.report import MemoryReport, Quantised, Shape, Sizes

GIB = 1 << 30
USABLE_OF_ACCELERATOR = 0.9
"""What vLLM takes by default; the rest is left to the driver and to others."""

_CPU_PROCESS = 200 << 20
_TORCH_PROCESS = 500 << 20
_CUDA_PROCESS = 3 * GIB // 2
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
_SIZE = re.compile(r"(?:.*-)?(\d{1,4})gb")

ACCELERATORS = {
    "a10-24gb": 24,
    "a100-40gb": 40,
    "a100-80gb": 80,
    "b200-180gb": 180,
    "h100-80gb": 80,
    "h200-141gb": 141,
    "l4-24gb": 24,
    "l40s-48gb": 48,
    "rtx4090-24gb": 24,
    "t4-16gb": 16,
}


class UnknownTargetError(CopydeskError):
    """A target of which nothing is known; it carries the `name`."""

    def __init__(self, name: str) -> None:
        self.name = name
        known = ", ".join(sorted(ACCELERATORS))
        super().__init__(f"{name!r} is no target that is known; there are {known}, or any name that ends in -NNgb")


@dataclass(frozen=True, slots=True)
class Target:
    """What a model is to run on: its name, and its memory in bytes."""

    name: str
    memory: int
    accelerator: bool


def target_of(name: str) -> Target:
    """Return the target of that name; a name that ends in its memory ("mi300-192gb", "64gb") needs no table."""
    found = _SIZE.fullmatch(name.lower())
    if found is None or int(found[1]) < 1:
        raise UnknownTargetError(name)
    return Target(name.lower(), int(found[1]) * GIB, accelerator=True)


def this_machine() -> Target:
    """Return this machine's main memory, or what this process may use of it."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = int(_CGROUP_LIMIT.read_text())
    except (OSError, ValueError):  # "max", or no such file
        limit = memory
    return Target("this machine", min(memory, limit), accelerator=False)


def memory_on(
    target: Target, shape: Shape, sizes: Sizes, quantised: Quantised | None, context: int
) -> tuple[MemoryReport, ...]:
    """Return what it takes in each arithmetic that makes sense there; `context` is the tokens of a slot."""
    numbers = 2 * shape.layers * shape.kv_heads * shape.head_dim
    tokens = min(context, shape.context)

    def report(arithmetic: str, usable: int, fixed: int, weights: int, kv_bytes: int) -> MemoryReport:
        slot = numbers * kv_bytes * tokens
        return MemoryReport(
            target=target.name,
            arithmetic=arithmetic,
            total=target.memory,
            fixed=fixed,
            weights=weights,
            kv_bytes_per_token=numbers * kv_bytes,
            context=tokens,
            slots=max(0, (usable - fixed - weights) // max(slot, 1)),
        )

    if target.accelerator:
        usable = int(target.memory * USABLE_OF_ACCELERATOR)
        stored = quantised.scheme or quantised.method or "quantised" if quantised is not None else ""
        in_half = 2 * sizes.parameters
        weights = sizes.bytes if quantised is not None else in_half
        return (report(stored or "bfloat16", usable, _CUDA_PROCESS, weights, 2),)
    packed = packed_bytes(shape)
    both = sizes.parameters + (shape.vocabulary * shape.hidden if shape.tied else 0)
    return (
        report("int8", target.memory, _CPU_PROCESS, packed, 2),
        report("bfloat16", target.memory, _TORCH_PROCESS, 2 * both, 2),
        report("float32", target.memory, _TORCH_PROCESS, 4 * both, 4),
    )


def packed_bytes(shape: Shape) -> int:
    """Return the bytes of the 8-bit engine's block of weights, all but its alignment.

    The embedding in bfloat16, so that it can be read by row, and every linear map in tiles with a scale and a sum
    for each output; an output head of its own even where it is the embedding's.
    """
    s = shape
    queries, keys = s.heads * s.head_dim, s.kv_heads * s.head_dim
    layer = (
        _linear(queries + 2 * keys, s.hidden)
        + _linear(s.hidden, queries)
        + _linear(2 * s.intermediate, s.hidden)
        + _linear(s.hidden, s.intermediate)
        + 8 * s.hidden
    )
    return 2 * s.vocabulary * s.hidden + 4 * s.hidden + _linear(s.vocabulary, s.hidden) + s.layers * layer


def _linear(outputs: int, inputs: int) -> int:
    rows = -(-outputs // 32) * 32
    return rows * (-(-inputs // 64) * 64) + 8 * rows
