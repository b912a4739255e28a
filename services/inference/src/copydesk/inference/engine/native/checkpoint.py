"""Reads named tensors out of a Hugging Face directory: one safetensors file, or shards with an index.

Weights may be in 8 bits. A reader hands them out with their scales, for layers that compute with them as they are.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from copydesk.inference.engine.native.errors import (
    MissingTensorError,
    TensorMismatchError,
    UnreadableModelError,
)
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
from copydesk.inference.engine.native.tensors import checkpoint_files
from copydesk.inference.quantisation.scheme import Quantisation


@dataclass(frozen=True, slots=True)
class QuantisedWeight:
    """A weight [outputs, inputs] in float8_e4m3fn or int8, and its float32 scales, [outputs, 1] or [1]."""

    values: torch.Tensor
    scale: torch.Tensor

    def to(self, device: torch.device) -> QuantisedWeight:
        """Return it on a device."""
        return QuantisedWeight(self.values.to(device), self.scale.to(device))

    def dequantised(self, dtype: torch.dtype) -> torch.Tensor:
        """Return what it stands for, rounded once."""
        return (self.values.float() * self.scale).to(dtype)


class CheckpointReader:
    """A context manager over the open files; tensors are read one at a time.

    Raises:
        UnreadableModelError: a file is missing, or is no safetensors file.
        MissingTensorError, TensorMismatchError: a scale lacks, or is one too many.
    """

    def __init__(self, directory: Path, dtype: torch.dtype, quantisation: Quantisation | None = None) -> None:
        self._dtype = dtype
        self._quantisation = quantisation
        self._stack = ExitStack()
        self._file_of: dict[str, Any] = {}
        self._type_of: dict[str, str] = {}
        with self._stack:
            for path in checkpoint_files(directory):
                self._open(path)
            check_names(self._type_of, quantisation)
            self._stack = self._stack.pop_all()

    def __enter__(self) -> CheckpointReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def tensor(self, name: str, *shape: int) -> torch.Tensor:
        """Read one tensor that is not quantised, a private copy of it, in the reader's dtype.

        Raises:
            MissingTensorError: there is none of that name.
            TensorMismatchError: it has another shape, or is not stored as floating point numbers.
        """
        stored = self._read(name, shape)
        check_weight_type(name, self._type_of[name], None)
        return stored.to(self._dtype, copy=True)

    def weight(self, module: str, rows: int, columns: int) -> torch.Tensor | QuantisedWeight:
        """Read the weight of a linear module: as it is stored if that is in 8 bits, else like `tensor`.

        Raises:
            MissingTensorError: the weight or its scale is not there.
            TensorMismatchError: one of them has another shape or type than it should, or a scale is not positive.
        """
        name, expected = module + WEIGHT, weight_type(self._quantisation, module)
        stored = self._read(name, (rows, columns))
        check_weight_type(name, self._type_of[name], expected)
        if self._quantisation is None or expected is None:
            return stored.to(self._dtype, copy=True)
        scale = self._read(module + SCALE, scale_shape(self._quantisation, rows))
        check_scale_type(module + SCALE, self._type_of[module + SCALE])
        scale = scale.to(torch.float32, copy=True)
        empty = ~(stored.float() != 0).view(scale.numel(), -1).any(1)
        check_scale(module + SCALE, scale.numpy(), empty.numpy())
        return QuantisedWeight(stored.clone(), scale)

    def _read(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        if name not in self._file_of:
            raise MissingTensorError(name)
        stored: torch.Tensor = self._file_of[name].get_tensor(name)
        if tuple(stored.shape) != shape:
            raise TensorMismatchError(name, f"of shape {list(stored.shape)}", str(list(shape)))
        return stored

    def _open(self, path: Path) -> None:
        try:
            file = self._stack.enter_context(safe_open(path, framework="pt"))
        except (OSError, SafetensorError) as error:
            raise UnreadableModelError(path, str(error)) from error
        for name in file.keys():  # noqa: SIM118 - it is no mapping
            self._file_of[name] = file
            self._type_of[name] = file.get_slice(name).get_dtype()
