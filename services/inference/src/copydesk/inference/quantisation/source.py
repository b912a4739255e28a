"""The model that is to be quantised: checked as a whole before anything is written, read tensor by tensor.

Files are read, not mapped: a mapped file that shrinks kills the process, and pages of it count as memory.
Format: https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import msgspec
import numpy as np
from numpy.typing import NDArray

from copydesk.inference.engine.native.config import ModelConfig, read_config
from copydesk.inference.engine.native.errors import (
    MissingTensorError,
    TensorMismatchError,
    UnreadableModelError,
)
from copydesk.inference.engine.native.files import (
    INDEX,
    LONGEST_HEADER,
    PICKLED,
    SINGLE,
    read_settings,
    require_file,
)
from copydesk.inference.quantisation.errors import (
    AlreadyQuantisedError,
    NonFiniteWeightError,
    PickledWeightsError,
    SourceChangedError,
)
from copydesk.inference.quantisation.modules import expected_tensors

DTYPES: dict[str, np.dtype[Any]] = {
    "F32": np.dtype(np.float32),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F16": np.dtype(np.float16),
}
_EXPONENT = {"F32": 0x7F800000, "BF16": 0x7F80, "F16": 0x7C00}
"""The bits that are all set in what is infinite or no number, and in nothing else."""

_CHUNK_BYTES = 16 << 20
_STAMPED = {".json", ".jinja", ".model", ".safetensors", ".txt"}
_LEFT_OVER = ("rotary_emb.inv_freq",)
"""Old converters stored what the configuration says anyway; no engine reads it."""


class _Entry(msgspec.Struct, frozen=True):
    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


class _Index(msgspec.Struct, frozen=True):
    weight_map: dict[str, str]


@dataclass(frozen=True, slots=True)
class SourceTensor:
    """Where a tensor lies: `size` bytes from `offset` of `path`."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    path: Path
    offset: int
    size: int

    def read(self, first: int = 0, count: int | None = None) -> bytearray:
        """Read `count` bytes from the `first` on.

        Raises:
            UnreadableModelError: the file has become shorter, or cannot be read.
        """
        content = bytearray(self.size - first if count is None else count)
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset + first)
                found = file.readinto(content)
        except OSError as error:
            raise UnreadableModelError(self.path, error.strerror or str(error)) from error
        if found != len(content):
            raise UnreadableModelError(self.path, f"ends within tensor {self.name}")
        return content

    def chunks(self) -> Iterator[bytearray]:
        """All of its bytes, piece by piece, each checked.

        Raises:
            NonFiniteWeightError: a value is infinite or no number.
        """
        for first in range(0, self.size, _CHUNK_BYTES):
            content = self.read(first, min(_CHUNK_BYTES, self.size - first))
            self._require_finite(content)
            yield content

    def floats(self) -> NDArray[np.float32]:
        """The whole tensor in float32; raises as `chunks` does."""
        content = self.read()
        self._require_finite(content)
        return self._widened(content).reshape(self.shape)

    def rows(self, first: int, last: int) -> NDArray[np.float32]:
        """Rows `first` to `last` (exclusive) in float32."""
        row = self.size // self.shape[0]
        content = self.read(first * row, (last - first) * row)
        return self._widened(content).reshape(last - first, -1)

    def _widened(self, content: bytearray) -> NDArray[np.float32]:
        if self.dtype != "BF16":
            return np.frombuffer(content, DTYPES[self.dtype]).astype(np.float32)
        # bfloat16 is the upper half of float32; shifting is several times as fast as converting.
        return np.left_shift(np.frombuffer(content, np.uint16), 16, dtype=np.uint32).view(np.float32)

    def _require_finite(self, content: bytearray) -> None:
        exponent = _EXPONENT[self.dtype]
        bits: NDArray[Any] = np.frombuffer(content, np.uint32 if self.dtype == "F32" else np.uint16)
        count = int(np.count_nonzero((bits & exponent) == exponent))
        if count:
            raise NonFiniteWeightError(self.name, count)


@dataclass(frozen=True, slots=True)
class Source:
    """A model directory that is complete: `config_json` is its config.json as it stands there."""

    directory: Path
    config: ModelConfig
    config_json: Mapping[str, Any]
    tensors: Mapping[str, SourceTensor]
    sharded: bool


def stamps(directory: Path) -> dict[str, tuple[int, ...]]:
    """What tells, without reading them, that files of the model in `directory` have been changed."""
    found: dict[str, tuple[int, ...]] = {}
    for path in directory.iterdir() if directory.is_dir() else ():
        if path.suffix in _STAMPED:
            with contextlib.suppress(OSError):  # a link to nothing
                status = path.stat()
                found[path.name] = (status.st_size, status.st_mtime_ns, status.st_ino)
    return found


def check_unchanged(directory: Path, before: Mapping[str, tuple[int, ...]]) -> None:
    """Raises `SourceChangedError` for a file that has been changed since `stamps` said `before`."""
    now = stamps(directory)
    for name in sorted(now.keys() | before.keys()):
        if now.get(name) != before.get(name):
            raise SourceChangedError(directory, name)


def open_source(directory: Path) -> Source:
    """Check that `directory` holds a whole model of a kind that is served, and is not quantised.

    Raises:
        UnreadableModelError: a file is missing, cut short, or not what it should be.
        UnsupportedModelError: the architecture, or something else about the model, is not served.
        AlreadyQuantisedError, PickledWeightsError: there is no original in safetensors.
        MissingTensorError, TensorMismatchError: the weights are not those that config.json implies.
    """
    config_json = _read_json(directory / "config.json")
    quantised = config_json.get("quantization_config")
    if quantised is not None:
        method = quantised.get("quant_method") if isinstance(quantised, dict) else quantised
        raise AlreadyQuantisedError(directory, str(method))
    config = read_config(directory)
    sharded = (directory / INDEX).is_file()
    tensors = _sharded_tensors(directory) if sharded else _single_tensors(directory)
    for name in [name for name in tensors if name.endswith(_LEFT_OVER)]:
        del tensors[name]
    _check_tensors(config, tensors)
    return Source(directory, config, config_json, tensors, sharded)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(read_settings(path))
    except (ValueError, RecursionError) as error:
        raise UnreadableModelError(path, f"no JSON: {error}") from error
    if not isinstance(content, dict):
        raise UnreadableModelError(path, "no JSON object")
    return content


def _single_tensors(directory: Path) -> dict[str, SourceTensor]:
    path = directory / SINGLE
    if not path.exists():
        _refuse_pickled(directory)
    return _read_header(path)


def _refuse_pickled(directory: Path) -> None:
    pickled = sorted(path.name for path in directory.iterdir() if path.suffix.lower() in PICKLED)
    if pickled:
        raise PickledWeightsError(directory, pickled[0])


def _sharded_tensors(directory: Path) -> dict[str, SourceTensor]:
    index = directory / INDEX
    try:
        shard_of = msgspec.json.decode(index.read_bytes(), type=_Index).weight_map
    except (OSError, msgspec.MsgspecError, RecursionError) as error:
        raise UnreadableModelError(index, str(error)) from error
    tensors: dict[str, SourceTensor] = {}
    for shard in sorted(set(shard_of.values())):
        if Path(shard).name != shard or not shard.endswith(".safetensors"):
            raise UnreadableModelError(index, f"names a shard that is no safetensors file beside it: {shard!r}")
        tensors |= {
            name: tensor
            for name, tensor in _read_header(directory / shard).items()
            if shard_of.get(name, shard) == shard
        }
    for name, shard in shard_of.items():
        if name not in tensors:
            raise UnreadableModelError(directory / shard, f"has no tensor {name}, which the index says is there")
    return tensors


def _read_header(path: Path) -> dict[str, SourceTensor]:
    require_file(path)
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > min(LONGEST_HEADER, size - 8):
                raise UnreadableModelError(path, f"cut short: {size} bytes do not hold its header")
            header = msgspec.json.decode(file.read(length), type=dict[str, msgspec.Raw])
        header.pop("__metadata__", None)
        entries = {name: msgspec.json.decode(entry, type=_Entry) for name, entry in header.items()}
    except OSError as error:
        raise UnreadableModelError(path, error.strerror or str(error)) from error
    except (msgspec.MsgspecError, RecursionError) as error:
        raise UnreadableModelError(path, f"its header cannot be read: {error}") from error
    _check_extent(path, entries, size - 8 - length)
    return {
        name: SourceTensor(name, entry.dtype, tuple(entry.shape), path, 8 + length + entry.data_offsets[0], nbytes)
        for name, entry in entries.items()
        if (nbytes := entry.data_offsets[1] - entry.data_offsets[0]) >= 0
    }


def _check_extent(path: Path, entries: Mapping[str, _Entry], size: int) -> None:
    """The tensors must follow one another without gaps, to the end of the file."""
    end = 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1].data_offsets):
        first, last = entry.data_offsets
        if first != end or last < first:
            raise UnreadableModelError(path, f"tensor {name} does not lie right behind the one before it")
        end = last
    if end > size:
        raise UnreadableModelError(path, f"cut short: {size} bytes of tensors, its header describes {end}")
    if end < size:
        raise UnreadableModelError(path, f"{size} bytes of tensors, its header describes only {end}")


def _check_tensors(config: ModelConfig, tensors: Mapping[str, SourceTensor]) -> None:
    expected = expected_tensors(config)
    for name, shape in expected.items():
        if name not in tensors:
            raise MissingTensorError(name)
        _check_tensor(tensors[name], shape)
    for name in tensors.keys() - expected.keys():
        if not (config.tied and name == "lm_head.weight"):
            raise TensorMismatchError(name, "there", "only what config.json implies")
        _check_tensor(tensors[name], (config.vocabulary, config.hidden))


def _check_tensor(tensor: SourceTensor, shape: tuple[int, ...]) -> None:
    if tensor.shape != shape:
        raise TensorMismatchError(tensor.name, f"of shape {list(tensor.shape)}", str(list(shape)))
    if tensor.dtype not in DTYPES:
        raise TensorMismatchError(tensor.name, f"of type {tensor.dtype}", "F32, BF16 or F16")
    size = int(np.prod(shape, dtype=np.int64)) * DTYPES[tensor.dtype].itemsize
    if tensor.size != size:
        raise TensorMismatchError(tensor.name, f"{tensor.size} bytes long", str(size))
