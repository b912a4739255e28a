"""What a GGUF file says of itself, walked through before anybody believes it.

The reader of the `gguf` package takes counts and lengths as they stand: a file of a few bytes that promises an
array of 2^60 numbers keeps it busy, and fills the memory, for ever. Here each is compared with what is there.
Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import BinaryIO

from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType

from copydesk.inference.checkpoint.errors import UnsupportedGgufError

_VERSIONS = (2, 3)
_LEAST_KEY, _LEAST_TENSOR = 8 + 4 + 1, 8 + 4 + 4 + 8
"""Bytes of a key without a name and with the smallest value, and of a tensor without a name and sizes."""

_MOST_SIZES = 4  # GGML_MAX_DIMS
_SCALAR_BYTES = {
    GGUFValueType.UINT8: 1,
    GGUFValueType.INT8: 1,
    GGUFValueType.BOOL: 1,
    GGUFValueType.UINT16: 2,
    GGUFValueType.INT16: 2,
    GGUFValueType.UINT32: 4,
    GGUFValueType.INT32: 4,
    GGUFValueType.FLOAT32: 4,
    GGUFValueType.UINT64: 8,
    GGUFValueType.INT64: 8,
    GGUFValueType.FLOAT64: 8,
}


def check_header(path: Path) -> None:
    """Make sure that all that a file describes lies within it.

    Raises:
        UnsupportedGgufError: it does not, or it is no GGUF file of a known version.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        _Walk(path, file).whole()


class _Walk:
    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path = path
        self._file = file
        self._size = file.seek(0, 2)
        file.seek(0)

    def whole(self) -> None:
        if self._file.read(4) != b"GGUF":
            raise self._refused("it is no GGUF file")
        version = self._number(4)
        if version not in _VERSIONS:
            raise self._refused(f"it is of version {version}, expected 2 or 3, with the lowest byte first")
        tensors, keys = self._number(8), self._number(8)
        self._require(keys * _LEAST_KEY + tensors * _LEAST_TENSOR, f"{keys} keys and {tensors} tensors")
        for _ in range(keys):
            self._text("the name of a key")
            self._value(self._number(4))
        for _ in range(tensors):
            self._tensor()

    def _value(self, kind: int) -> None:
        if kind == GGUFValueType.STRING:
            self._text("a text")
        elif kind == GGUFValueType.ARRAY:
            self._array()
        else:
            self._skip(self._scalar_bytes(kind), "a value")

    def _array(self) -> None:
        kind, count = self._number(4), self._number(8)
        if kind == GGUFValueType.STRING:
            self._require(8 * count, f"an array of {count} texts")
            for _ in range(count):
                self._text("a text")
        else:
            self._skip(count * self._scalar_bytes(kind), f"an array of {count} values")

    def _tensor(self) -> None:
        self._text("the name of a tensor")
        sizes = self._number(4)
        if sizes > _MOST_SIZES:
            raise self._refused(f"a tensor has {sizes} sizes, expected {_MOST_SIZES} at the most")
        numbers = math.prod(self._number(8) for _ in range(sizes))
        kind, offset = self._number(4), self._number(8)
        try:
            block, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
        except (KeyError, ValueError) as error:
            raise self._refused(f"a tensor has the unknown type {kind}") from error
        self._require(offset + numbers // block * block_bytes, "a tensor")

    def _scalar_bytes(self, kind: int) -> int:
        try:
            return _SCALAR_BYTES[GGUFValueType(kind)]
        except (KeyError, ValueError) as error:
            raise self._refused(f"a value has the type {kind}, which is not read here") from error

    def _number(self, size: int) -> int:
        found = self._file.read(size)
        if len(found) < size:
            raise self._refused("it is cut short")
        return int.from_bytes(found, "little")

    def _text(self, what: str) -> None:
        self._skip(self._number(8), what)

    def _skip(self, count: int, what: str) -> None:
        self._require(count, what)
        self._file.seek(count, 1)

    def _require(self, count: int, what: str) -> None:
        left = self._size - self._file.tell()
        if count > left:
            raise self._refused(f"{what} would take {count:,} bytes, of which {left:,} are there")

    def _refused(self, reason: str) -> UnsupportedGgufError:
        return UnsupportedGgufError(self._path, reason)
