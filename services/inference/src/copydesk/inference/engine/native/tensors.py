"""Reads tensors out of a Hugging Face directory as they are stored, without torch and without a copy.

The safetensors format: eight bytes of length, a JSON header, then the tensors' bytes
(https://github.com/huggingface/safetensors#format).
"""

from __future__ import annotations

import math
import mmap
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import msgspec
import numpy as np
from numpy.typing import NDArray

from copydesk.inference.engine.native.errors import (
    MissingTensorError,
    TensorMismatchError,
    UnreadableModelError,
)
from copydesk.inference.engine.native.files import INDEX, LONGEST_HEADER, SINGLE, require_file
from copydesk.inference.engine.native.scales import (
    SCALE,
    WEIGHT,
    check_names,
    check_scale,
    check_scale_type,
    check_weight_type,
    scale_shape,
    weight_type,
)
from copydesk.inference.quantisation.scheme import Quantisation

_ITEM_BYTES = {"F32": 4, "BF16": 2, "F16": 2, "F8_E4M3": 1, "I8": 1}
_SIGN_FREE = {"F8_E4M3": 0x7F, "I8": 0xFF}  # what is left of a byte says whether it is a zero


class _Index(msgspec.Struct, frozen=True):
    weight_map: dict[str, str]


class _Entry(msgspec.Struct, frozen=True):
    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """`data` are the bytes of a tensor of `dtype`: F32, BF16, F16; or F8_E4M3, I8, to be multiplied with `scale`.

    There is one scale for each row, or one for all.
    """

    dtype: str
    shape: tuple[int, ...]
    data: NDArray[np.uint8]
    scale: NDArray[np.float32] | None = None


class StoredTensors:
    """Every tensor of a directory, by name.

    Raises:
        UnreadableModelError: a file is missing, or is no safetensors file.
        MissingTensorError, TensorMismatchError: a scale lacks, or is one too many.
    """

    def __init__(self, directory: Path, quantisation: Quantisation | None = None) -> None:
        self._quantisation = quantisation
        self._tensors: dict[str, tuple[_Entry, NDArray[np.uint8]]] = {}
        for path in checkpoint_files(directory):
            self._open(path)
        check_names({name: entry.dtype for name, (entry, _) in self._tensors.items()}, quantisation)

    def tensor(self, name: str, *shape: int) -> StoredTensor:
        """Look up a tensor that is not quantised.

        Raises:
            MissingTensorError: there is none of that name.
            TensorMismatchError: it has another shape, or is not stored as floating point numbers.
        """
        entry, data = self._look_up(name, shape)
        check_weight_type(name, entry.dtype, None)
        return StoredTensor(entry.dtype, shape, data)

    def weight(self, module: str, rows: int, columns: int) -> StoredTensor:
        """Look up the weight of a linear module, with its scale if the module is quantised.

        Raises:
            MissingTensorError: the weight or its scale is not there.
            TensorMismatchError: one of them has another shape or type than it should, or a scale is not positive.
        """
        expected = weight_type(self._quantisation, module)
        entry, data = self._look_up(module + WEIGHT, (rows, columns))
        check_weight_type(module + WEIGHT, entry.dtype, expected)
        if self._quantisation is None or expected is None:
            return StoredTensor(entry.dtype, (rows, columns), data)
        scale = self._scale(module + SCALE, scale_shape(self._quantisation, rows))
        empty = ~np.any(data.reshape(len(scale), -1) & _SIGN_FREE[expected], axis=1)
        check_scale(module + SCALE, scale, empty)
        return StoredTensor(entry.dtype, (rows, columns), data, scale)

    def _look_up(self, name: str, shape: tuple[int, ...]) -> tuple[_Entry, NDArray[np.uint8]]:
        if name not in self._tensors:
            raise MissingTensorError(name)
        entry, data = self._tensors[name]
        if tuple(entry.shape) != shape:
            raise TensorMismatchError(name, f"of shape {entry.shape}", str(list(shape)))
        return entry, data

    def _scale(self, name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
        entry, data = self._look_up(name, shape)
        check_scale_type(name, entry.dtype)
        stored = np.frombuffer(data.tobytes(), np.float32 if entry.dtype == "F32" else ml_dtypes.bfloat16)
        return np.ascontiguousarray(stored, np.float32)

    def _open(self, path: Path) -> None:
        try:
            with path.open("rb") as file:
                mapped = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise UnreadableModelError(path, reason) from error
        for name, entry in _header(path, mapped).items():
            start = 8 + _header_length(mapped)
            first, last = (start + offset for offset in entry.data_offsets)
            size = math.prod(entry.shape) * _ITEM_BYTES.get(entry.dtype, 0)
            # As many bytes are read as the shape says, wherever the tensor begins.
            if not start <= first <= last <= len(mapped) or (entry.dtype in _ITEM_BYTES and last - first != size):
                raise UnreadableModelError(path, f"tensor {name} does not lie within the file")
            self._tensors[name] = entry, mapped[first:last]


def checkpoint_files(directory: Path) -> list[Path]:
    """Return the files that hold the weights: one, or the shards that an index names.

    Raises:
        UnreadableModelError: the index cannot be read, or names a file elsewhere.
    """
    index = directory / INDEX
    if not index.is_file():
        require_file(directory / SINGLE)
        return [directory / SINGLE]
    try:
        names = set(msgspec.json.decode(index.read_bytes(), type=_Index).weight_map.values())
    except (OSError, msgspec.MsgspecError, RecursionError) as error:
        raise UnreadableModelError(index, str(error)) from error
    for name in names:
        if Path(name).name != name:
            raise UnreadableModelError(index, f"names a file outside the directory: {name!r}")
        require_file(directory / name)
    return [directory / name for name in sorted(names)]


def _header_length(mapped: NDArray[np.uint8]) -> int:
    return int.from_bytes(mapped[:8].tobytes(), "little")


def _header(path: Path, mapped: NDArray[np.uint8]) -> dict[str, _Entry]:
    length = _header_length(mapped)
    if len(mapped) < 8 or length > min(LONGEST_HEADER, len(mapped) - 8):
        raise UnreadableModelError(path, "its header is longer than the file")
    try:
        header = msgspec.json.decode(mapped[8 : 8 + length].tobytes(), type=dict[str, msgspec.Raw])
        header.pop("__metadata__", None)
        return {name: msgspec.json.decode(entry, type=_Entry) for name, entry in header.items()}
    except (msgspec.MsgspecError, RecursionError) as error:
        raise UnreadableModelError(path, f"its header cannot be read: {error}") from error
