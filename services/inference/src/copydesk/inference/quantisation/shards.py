"""Safetensors files of bounded size, laid out before the first tensor is known and filled in any order.

Within a file wider numbers come first, so that every tensor lies at a multiple of the size of its numbers.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from copydesk.inference.engine.native.files import INDEX, SINGLE

ITEM_BYTES = {"F32": 4, "BF16": 2, "F16": 2, "F8_E4M3": 1, "I8": 1}
_ALIGNMENT = 8


@dataclass(frozen=True, slots=True)
class Entry:
    """A tensor to be written."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """In bytes."""
        return int(np.prod(self.shape, dtype=np.int64)) * ITEM_BYTES[self.dtype]


@dataclass(frozen=True, slots=True)
class Shard:
    """One file: its header, and at which byte each tensor begins."""

    name: str
    header: bytes
    offsets: dict[str, int]
    size: int


def lay_out(units: Sequence[Sequence[Entry]], limit: int, *, always_split: bool) -> list[Shard]:
    """Divide `units` of tensors that stay together among files of at most `limit` bytes, in their order.

    A unit larger than that gets a file of its own. One file is called `model.safetensors`, unless `always_split`.
    """
    parts: list[list[Entry]] = [[]]
    filled = 0
    for unit in units:
        size = sum(entry.size for entry in unit)
        if parts[-1] and filled + size > limit:
            parts.append([])
            filled = 0
        parts[-1] += unit
        filled += size
    if len(parts) == 1 and not always_split:
        return [_shard(SINGLE, parts[0])]
    return [_shard(f"model-{i:05}-of-{len(parts):05}.safetensors", part) for i, part in enumerate(parts, 1)]


def index_of(shards: Iterable[Shard]) -> dict[str, Any]:
    """What the index says: in which file each tensor is."""
    sizes, names = 0, dict[str, str]()
    for shard in shards:
        sizes += shard.size - len(shard.header)
        names |= dict.fromkeys(shard.offsets, shard.name)
    return {"metadata": {"total_size": sizes}, "weight_map": dict(sorted(names.items()))}


def index_name(shards: Sequence[Shard]) -> str | None:
    """The file that the index goes to, or None where there is but one file of weights."""
    return None if len(shards) == 1 and shards[0].name == SINGLE else INDEX


class ShardFiles:
    """The files of `shards` in `folder`, open to be filled: a context manager."""

    def __init__(self, folder: Path, shards: Iterable[Shard]) -> None:
        self._place: dict[str, tuple[int, int]] = {}
        self._descriptors: list[int] = []
        try:
            for shard in shards:
                self._create(folder, shard)
        except BaseException:
            self._close()
            raise

    def __enter__(self) -> ShardFiles:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def put(self, name: str, content: NDArray[Any] | bytearray, at: int = 0) -> int:
        """Write bytes of tensor `name` from its byte `at` on; return where they end."""
        descriptor, offset = self._place[name]
        left = memoryview(content if isinstance(content, bytearray) else content.tobytes())
        end = at + len(left)
        place = offset + at
        while left:
            written = os.pwrite(descriptor, left, place)
            left, place = left[written:], place + written
        return end

    def _create(self, folder: Path, shard: Shard) -> None:
        descriptor = os.open(folder / shard.name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        self._descriptors.append(descriptor)
        os.pwrite(descriptor, shard.header, 0)
        self._place |= {name: (descriptor, offset) for name, offset in shard.offsets.items()}

    def _close(self) -> None:
        while self._descriptors:
            os.close(self._descriptors.pop())


def _shard(name: str, entries: Iterable[Entry]) -> Shard:
    ordered = sorted(entries, key=lambda entry: (-ITEM_BYTES[entry.dtype], entry.name))
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    starts: dict[str, int] = {}
    end = 0
    for entry in ordered:
        starts[entry.name] = end
        end += entry.size
        offsets = [starts[entry.name], end]
        header[entry.name] = {"dtype": entry.dtype, "shape": list(entry.shape), "data_offsets": offsets}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    head = len(text).to_bytes(8, "little") + text
    return Shard(name, head, {tensor: len(head) + start for tensor, start in starts.items()}, len(head) + end)
