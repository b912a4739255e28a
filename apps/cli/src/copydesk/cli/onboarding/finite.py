"""Weights that are no numbers: found by reading each file once, in pieces, whatever its size.

A value is infinite or no number where all bits of its exponent are set; so no arithmetic is needed.
"""

from __future__ import annotations

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
    """Return the tensors of all files of weights that hold such values, of those also that no index names.

    Raises:
        OSError: A file cannot be read.
        HeaderError: A file is no safetensors file, or its header does not fit its size.
        ValueError: A file was made shorter while it was read.
    """
    from copydesk.inference.inspection.headers import read_header

    found = []
    for path in sorted(directory.glob("*.safetensors")):
        if not path.is_file():
            continue
        tensors = read_header(path)
        with path.open("rb") as file:
            # Tensors fill the file from the header's end to its own.
            start = file.seek(0, 2) - max((one.last for one in tensors), default=0)
            for one in tensors:
                count = _count(file, one.dtype, start + one.first, start + one.last)
                if count:
                    found.append(BadTensor(name=one.name, values=count))
    return found


def _count(file: BinaryIO, dtype: str, begin: int, end: int) -> int:
    if dtype not in _EXPONENTS:
        return 0
    unsigned, exponent = _EXPONENTS[dtype]
    file.seek(begin)
    count = 0
    for at in range(begin, end, _PIECE):
        piece = file.read(min(_PIECE, end - at))
        if not piece:
            raise ValueError("it became shorter while it was read")
        values = np.frombuffer(piece, dtype=unsigned)
        count += int(np.count_nonzero((values & unsigned(exponent)) == exponent))
    return count
