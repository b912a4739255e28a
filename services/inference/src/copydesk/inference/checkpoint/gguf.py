"""Reading a Llama decoder out of a GGUF file: settings, vocabulary and weights in float32.

llama.cpp rotates pairs of neighbouring dimensions where Hugging Face's Llama rotates halves, so its converter
reorders the rows of the q and k projections; here that is undone. Format:
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from gguf import GGUFReader, dequantize
from numpy.typing import NDArray

from copydesk.inference.checkpoint.errors import UnsupportedGgufError
from copydesk.inference.checkpoint.gguf_header import check_header

_GLOBAL_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_LAYER = re.compile(r"blk\.(\d+)\.(\w+)\.weight")
_T = TypeVar("_T")
_CONTROL = 3
"""The token type of control tokens (`llama_token_type` in llama.cpp)."""


@dataclass(frozen=True)
class LlamaShape:
    """The sizes and constants of a Llama decoder; token ids are None where the file names none."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    context: int
    rope_theta: float
    rms_norm_eps: float
    vocabulary: int
    tied: bool


@dataclass(frozen=True)
class Vocabulary:
    """A byte-level BPE vocabulary: `tokens` by id, `merges` by rank, and which ids are control tokens."""

    tokens: tuple[str, ...]
    merges: tuple[tuple[str, str], ...]
    control_ids: tuple[int, ...]
    bos_id: int
    eos_id: int
    unk_id: int | None
    pad_id: int | None


class GgufModel:
    """One opened GGUF file. Weights stay on disk until they are asked for.

    Raises:
        UnsupportedGgufError: It is no Llama decoder with a byte-level BPE vocabulary.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            check_header(path)
            self._reader = GGUFReader(path)
        except (OSError, ValueError, LookupError) as error:
            raise UnsupportedGgufError(path, str(error)) from error
        self._require("general.architecture", "llama")
        self._require("tokenizer.ggml.model", "gpt2")
        self.shape = self._read_shape()

    def read_vocabulary(self) -> Vocabulary:
        """The tokens and merges. Takes about a second.

        Raises:
            UnsupportedGgufError: There are none, or they are no such vocabulary.
        """
        types = self._list("tokenizer.ggml.token_type", int)
        return Vocabulary(
            tokens=tuple(self._list("tokenizer.ggml.tokens", str)),
            merges=tuple(self._merge(line) for line in self._list("tokenizer.ggml.merges", str)),
            control_ids=tuple(index for index, kind in enumerate(types) if kind == _CONTROL),
            bos_id=self._whole("tokenizer.ggml.bos_token_id"),
            eos_id=self._whole("tokenizer.ggml.eos_token_id"),
            unk_id=self._whole_or_none("tokenizer.ggml.unknown_token_id"),
            pad_id=self._whole_or_none("tokenizer.ggml.padding_token_id"),
        )

    @property
    def tensor_count(self) -> int:
        """How many tensors `tensors` yields."""
        return len(self._reader.tensors)

    def tensors(self) -> Iterator[tuple[str, NDArray[np.float32]]]:
        """Every weight in float32 under its Hugging Face name, in its Hugging Face layout.

        Raises:
            UnsupportedGgufError: One has a name, a type or a shape that a Llama decoder's has not.
        """
        for tensor in self._reader.tensors:
            name = hugging_face_name(tensor.name)
            if name is None:
                raise UnsupportedGgufError(self.path, f"unknown tensor {tensor.name}")
            try:
                with np.errstate(invalid="ignore", over="ignore"):
                    weight = dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)
                if name.endswith("q_proj.weight"):
                    weight = unpermute(weight, self.shape.heads)
                elif name.endswith("k_proj.weight"):
                    weight = unpermute(weight, self.shape.kv_heads)
            except (ValueError, NotImplementedError) as error:
                raise UnsupportedGgufError(self.path, f"tensor {tensor.name}: {error}") from error
            if not np.isfinite(weight).all():
                raise UnsupportedGgufError(self.path, f"tensor {tensor.name} has values that are no numbers")
            yield name, weight

    def _read_shape(self) -> LlamaShape:
        heads = self._whole("llama.attention.head_count", least=1)
        hidden = self._whole("llama.embedding_length", least=1)
        return LlamaShape(
            layers=self._whole("llama.block_count", least=1),
            hidden=hidden,
            intermediate=self._whole("llama.feed_forward_length", least=1),
            heads=heads,
            kv_heads=self._whole("llama.attention.head_count_kv", heads, least=1),
            head_dim=self._whole("llama.attention.key_length", hidden // heads, least=1),
            context=self._whole("llama.context_length", least=1),
            rope_theta=self._float("llama.rope.freq_base", 10000.0),
            rms_norm_eps=_shortest(self._float("llama.attention.layer_norm_rms_epsilon")),
            vocabulary=self._whole("llama.vocab_size", least=1),
            tied=all(tensor.name != "output.weight" for tensor in self._reader.tensors),
        )

    def _require(self, key: str, expected: str) -> None:
        found = self._field(key)
        if found != expected:
            raise UnsupportedGgufError(self.path, f"{key} is {found!r}, expected {expected!r}")

    def _whole(self, key: str, *default: int, least: int = 0) -> int:
        found = self._field(key, *default)
        if type(found) is not int or found < least:
            raise UnsupportedGgufError(self.path, f"{key} is {found!r}, expected a whole number from {least} on")
        return found

    def _whole_or_none(self, key: str) -> int | None:
        return None if self._reader.get_field(key) is None else self._whole(key)

    def _float(self, key: str, *default: float) -> float:
        found = self._field(key, *default)
        if not isinstance(found, float) or not math.isfinite(found):
            raise UnsupportedGgufError(self.path, f"{key} is {found!r}, expected a number")
        return found

    def _list(self, key: str, kind: type[_T]) -> list[_T]:
        found = self._field(key)
        if not isinstance(found, list) or not all(type(one) is kind for one in found):
            raise UnsupportedGgufError(self.path, f"{key} is no array of {kind.__name__}")
        return found

    def _merge(self, line: str) -> tuple[str, str]:
        left, space, right = line.partition(" ")
        if not space or " " in right:
            raise UnsupportedGgufError(self.path, f"{line!r} is no merge of two tokens")
        return left, right

    def _field(self, key: str, *default: Any) -> Any:
        field = self._reader.get_field(key)
        if field is not None:
            try:
                return field.contents()
            except (ValueError, LookupError) as error:
                raise UnsupportedGgufError(self.path, f"{key} cannot be read: {error}") from error
        if default:
            return default[0]
        raise UnsupportedGgufError(self.path, f"{key} is missing")


def hugging_face_name(name: str) -> str | None:
    """What Hugging Face's Llama calls the tensor that llama.cpp calls `name`, or None if it has none such."""
    if name in _GLOBAL_NAMES:
        return _GLOBAL_NAMES[name]
    match = _LAYER.fullmatch(name)
    if match is None or match[2] not in _LAYER_NAMES:
        return None
    return f"model.layers.{match[1]}.{_LAYER_NAMES[match[2]]}.weight"


def unpermute(weight: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Put the rows of a q or k projection back: within each head, from (half, 2) pairs to (2, half) halves."""
    rows, columns = weight.shape
    pairs = weight.reshape(heads, rows // heads // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)


def _shortest(value: float) -> float:
    """The shortest decimal that is the same float32: 1e-05 rather than 9.999999747378752e-06."""
    return float(str(np.float32(value)))
