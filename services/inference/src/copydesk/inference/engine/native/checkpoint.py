"""Reads named tensors out of a Hugging Face directory: one safetensors file, or shards with an index."""

from __future__ import annotations

from contextlib import ExitStack
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
from copydesk.inference.engine.native.tensors import checkpoint_files

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


class CheckpointReader:
    """A context manager over the open files; tensors are read one at a time."""

    def __init__(self, directory: Path, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._stack = ExitStack()
        self._file_of: dict[str, Any] = {}
        with self._stack:
            for path in checkpoint_files(directory):
                self._open(path)
            self._stack = self._stack.pop_all()

    def __enter__(self) -> CheckpointReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def tensor(self, name: str, *shape: int) -> torch.Tensor:
        """Read one tensor, a private copy of it, in the reader's dtype.

        Raises:
            MissingTensorError: there is none of that name.
            TensorMismatchError: it has another shape, or is not stored as floating point numbers.
        """
        if name not in self._file_of:
            raise MissingTensorError(name)
        stored: torch.Tensor = self._file_of[name].get_tensor(name)
        if tuple(stored.shape) != shape:
            raise TensorMismatchError(name, f"of shape {list(stored.shape)}", str(list(shape)))
        if stored.dtype not in _DTYPES:
            raise TensorMismatchError(name, f"of type {stored.dtype}", "float32, bfloat16 or float16")
        return stored.to(self._dtype, copy=True)

    def _open(self, path: Path) -> None:
        try:
            file = self._stack.enter_context(safe_open(path, framework="pt"))
        except (OSError, SafetensorError) as error:
            raise UnreadableModelError(path, str(error)) from error
        self._file_of.update(dict.fromkeys(file.keys(), file))
