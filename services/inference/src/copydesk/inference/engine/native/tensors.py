"""Reads tensors out of a Hugging Face directory as they are stored, without torch and without a copy.

The safetensors format: eight bytes of length, a JSON header, then the tensors' bytes
(https://github.com/huggingface/safetensors#format).
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from copydesk.inference.engine.native.errors import (
    MissingTensorError,
    TensorMismatchError,
    UnreadableModelError,
)

_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_ITEM_BYTES = {"F32": 4, "BF16": 2, "F16": 2}
_LONGEST_HEADER = 100_000_000


class _Index(msgspec.Struct, frozen=True):
    weight_map: dict[str, str]


class _Entry(msgspec.Struct, frozen=True):
    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """`data` are the bytes of a tensor of `dtype`: F32, BF16 or F16."""

    dtype: str
    shape: tuple[int, ...]
    data: NDArray[np.uint8]


class StoredTensors:
    """Every tensor of a directory, by name.

    Raises:
        UnreadableModelError: a file is missing, or is no safetensors file.
    """

    def __init__(self, directory: Path) -> None:
        self._tensors: dict[str, tuple[_Entry, NDArray[np.uint8]]] = {}
        for path in checkpoint_files(directory):
            self._open(path)

    def tensor(self, name: str, *shape: int) -> StoredTensor:
        """Look a tensor up.

        Raises:
            MissingTensorError: there is none of that name.
            TensorMismatchError: it has another shape, or is not stored as floating point numbers.
        """
        if name not in self._tensors:
            raise MissingTensorError(name)
        entry, data = self._tensors[name]
        if tuple(entry.shape) != shape:
            raise TensorMismatchError(name, f"of shape {entry.shape}", str(list(shape)))
        if entry.dtype not in _ITEM_BYTES:
            raise TensorMismatchError(name, f"of type {entry.dtype}", "float32, bfloat16 or float16")
        return StoredTensor(entry.dtype, shape, data)

    def _open(self, path: Path) -> None:
        try:
            with path.open("rb") as file:
                mapped = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise UnreadableModelError(path, reason) from error
        for name, entry in _header(path, mapped).items():
            first, last = (8 + _header_length(mapped) + offset for offset in entry.data_offsets)
            size = int(np.prod(entry.shape, dtype=np.int64)) * _ITEM_BYTES.get(entry.dtype, 0)
            if not first <= last <= len(mapped) or (entry.dtype in _ITEM_BYTES and last - first != size):
                raise UnreadableModelError(path, f"tensor {name} does not lie within the file")
            self._tensors[name] = entry, mapped[first:last]


def checkpoint_files(directory: Path) -> list[Path]:
    """Return the files that hold the weights: one, or the shards that an index names.

    Raises:
        UnreadableModelError: the index cannot be read, or names a file elsewhere.
    """
    index = directory / _INDEX
    if not index.is_file():
        return [directory / _SINGLE]
    try:
        names = set(msgspec.json.decode(index.read_bytes(), type=_Index).weight_map.values())
    except (OSError, msgspec.MsgspecError) as error:
        raise UnreadableModelError(index, str(error)) from error
    for name in names:
        if Path(name).name != name:
            raise UnreadableModelError(index, f"names a file outside the directory: {name!r}")
    return [directory / name for name in sorted(names)]


def _header_length(mapped: NDArray[np.uint8]) -> int:
    return int.from_bytes(mapped[:8].tobytes(), "little")


def _header(path: Path, mapped: NDArray[np.uint8]) -> dict[str, _Entry]:
    length = _header_length(mapped)
    if len(mapped) < 8 or length > min(_LONGEST_HEADER, len(mapped) - 8):
        raise UnreadableModelError(path, "its header is longer than the file")
    try:
        header = msgspec.json.decode(mapped[8 : 8 + length].tobytes(), type=dict[str, msgspec.Raw])
        header.pop("__metadata__", None)
        return {name: msgspec.json.decode(entry, type=_Entry) for name, entry in header.items()}
    except msgspec.MsgspecError as error:
        raise UnreadableModelError(path, f"its header cannot be read: {error}") from error
