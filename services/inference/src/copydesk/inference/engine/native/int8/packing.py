"""From the tensors of a checkpoint to the block that `csrc/int8_model.hpp` describes.

A weight that is stored in integers is taken as it is, with its scale. Every other one is rounded to integers with
one scale a row, FP8 after it has been multiplied out, a row at a time. That goes for weights too that a quantised
checkpoint keeps in higher precision: the decoder has no other arithmetic, and rounding them costs no quality that
could be measured (docs/engine.md). Who wants them as they are takes bfloat16 or float32.
"""

from __future__ import annotations

import ctypes
import enum
from pathlib import Path

from copydesk.inference.engine.native.config import ModelConfig
from copydesk.inference.engine.native.tensors import StoredTensor, StoredTensors

_STORED = {"F32": 0, "BF16": 1, "F16": 2, "F8_E4M3": 3, "I8": 4}


class CdShape(ctypes.Structure):
    """See int8_model.hpp."""

    _fields_ = (
        *(
            (name, ctypes.c_int32)
            for name in ("vocabulary", "hidden", "intermediate", "layers", "heads", "kv_heads", "head_dim")
        ),
        *((name, ctypes.c_int32) for name in ("qkv_bias", "output_bias", "mlp_bias")),
        ("norm_epsilon", ctypes.c_float),
    )


class _Part(enum.IntEnum):
    EMBEDDING = 0
    NORM = 1
    HEAD = 2
    ATTENTION_NORM = 3
    MLP_NORM = 4
    QUERY = 5
    KEY = 6
    VALUE = 7
    OUTPUT = 8
    GATE = 9
    UP = 10
    DOWN = 11


def shape_of(config: ModelConfig) -> CdShape:
    """Describe a model to the library."""
    return CdShape(
        vocabulary=config.vocabulary,
        hidden=config.hidden,
        intermediate=config.intermediate,
        layers=config.layers,
        heads=config.heads,
        kv_heads=config.kv_heads,
        head_dim=config.head_dim,
        qkv_bias=config.qkv_bias,
        output_bias=config.output_bias,
        mlp_bias=config.mlp_bias,
        norm_epsilon=config.norm_epsilon,
    )


def block_size(library: ctypes.CDLL, shape: CdShape) -> int:
    """Return how many bytes the packed weights take."""
    function = library.cd_pack_size
    function.restype = ctypes.c_uint64
    return int(function(ctypes.byref(shape)))


class Packer:
    """Packs one checkpoint; see `StoredTensors` for the errors."""

    def __init__(self, library: ctypes.CDLL, config: ModelConfig, directory: Path) -> None:
        self._put_part = library.cd_pack_put
        self._put_part.restype = None
        number, address = ctypes.c_int32, ctypes.c_void_p
        self._put_part.argtypes = [
            *(address, address, number, number, number),  # where it goes
            *(address, number, number),  # what it is
            *(address, number),  # its scales
        ]
        self._config = config
        self._shape = shape_of(config)
        self._directory = directory

    def fill(self, address: int) -> None:
        """Write every part to the zeroed block at `address`."""
        c = self._config
        tensors = StoredTensors(self._directory, c.quantisation)
        embedding = tensors.tensor("model.embed_tokens.weight", c.vocabulary, c.hidden)
        head = embedding if c.tied else tensors.weight("lm_head", c.vocabulary, c.hidden)
        self._put(address, _Part.EMBEDDING, embedding)
        self._put(address, _Part.HEAD, head)
        self._put(address, _Part.NORM, tensors.tensor("model.norm.weight", c.hidden))
        for layer in range(c.layers):
            self._layer(address, tensors, layer)

    def _layer(self, address: int, tensors: StoredTensors, layer: int) -> None:
        c = self._config
        prefix = f"model.layers.{layer}"
        queries, keys = c.heads * c.head_dim, c.kv_heads * c.head_dim
        for name, part in (("input", _Part.ATTENTION_NORM), ("post_attention", _Part.MLP_NORM)):
            self._put(address, part, tensors.tensor(f"{prefix}.{name}_layernorm.weight", c.hidden), layer)
        maps = (
            (_Part.QUERY, "self_attn.q_proj", queries, c.hidden, c.qkv_bias),
            (_Part.KEY, "self_attn.k_proj", keys, c.hidden, c.qkv_bias),
            (_Part.VALUE, "self_attn.v_proj", keys, c.hidden, c.qkv_bias),
            (_Part.OUTPUT, "self_attn.o_proj", c.hidden, queries, c.output_bias),
            (_Part.GATE, "mlp.gate_proj", c.intermediate, c.hidden, c.mlp_bias),
            (_Part.UP, "mlp.up_proj", c.intermediate, c.hidden, c.mlp_bias),
            (_Part.DOWN, "mlp.down_proj", c.hidden, c.intermediate, c.mlp_bias),
        )
        for part, name, outputs, inputs, biased in maps:
            self._put(address, part, tensors.weight(f"{prefix}.{name}", outputs, inputs), layer)
            if biased:
                bias = tensors.tensor(f"{prefix}.{name}.bias", outputs)
                self._put(address, part, bias, layer, bias=True)

    def _put(self, address: int, part: _Part, tensor: StoredTensor, layer: int = 0, *, bias: bool = False) -> None:
        scale = tensor.scale
        self._put_part(
            ctypes.byref(self._shape),
            address,
            part,
            layer,
            bias,
            tensor.data.ctypes.data,
            _STORED[tensor.dtype],
            tensor.shape[0],
            None if scale is None else scale.ctypes.data,
            0 if scale is None else len(scale),
        )
