"""Weights that are no numbers: found by reading each file once, in pieces, whatever its size.

A value is infinite or no number where all bits of its exponent are set; so no arithmetic is needed.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np

_PIECE = 1 << 24
_EXPONENTS: dict[str, tuple[Any, int]] = {
    "BF16": (np.uint16, 0x7F80),
    "F16": (np.uint16, 0x7C00),
    "F32": (np.uint32, 0x7F800000),
    "F64": (np.uint64, 0x7FF0000000000000),
}


class BadTensor(msgspec.Struct, frozen=True, kw_only=True):
    """A tensor that has so many values which are infinite or no number."""

    name: str
    values: int


def bad_tensors(directory: Path) -> list[BadTensor]:
    """Return the tensors of all files of weights that hold such values.

    The files must be sound (`copydesk.inference.inspection`). Raises OSError.
    """
    found = []
    for path in sorted(directory.glob("*.safetensors")):
        with path.open("rb") as file:
            for name, dtype, begin, end in _tensors(file):
                count = _count(file, dtype, begin, end)
                if count:
                    found.append(BadTensor(name=name, values=count))
    return found


def _tensors(file: BinaryIO) -> Iterator[tuple[str, str, int, int]]:
    (length,) = struct.unpack("<Q", file.read(8))
    header = json.loads(file.read(length))
    for name, said in header.items():
        if name != "__metadata__":
            begin, end = said["data_offsets"]
            yield name, said["dtype"], 8 + length + begin, 8 + length + end


def _count(file: BinaryIO, dtype: str, begin: int, end: int) -> int:
    if dtype not in _EXPONENTS:
        return 0
    unsigned, exponent = _EXPONENTS[dtype]
    file.seek(begin)
    count = 0
    for at in range(begin, end, _PIECE):
        values = np.frombuffer(file.read(min(_PIECE, end - at)), dtype=unsigned)
        count += int(np.count_nonzero((values & unsigned(exponent)) == exponent))
    return count
