from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.inference.checkpoint.errors import UnsupportedGgufError
from copydesk.inference.checkpoint.gguf import GgufModel, hugging_face_name, unpermute
from copydesk.inference.checkpoint.tokenizer import build_tokenizer
from tests.unit.checkpoint.tiny_gguf import Weights, write_gguf


def test_every_weight_comes_back_under_its_hugging_face_name(gguf_path: Path, weights: Weights) -> None:
    found = dict(GgufModel(gguf_path).tensors())
    assert found.keys() == weights.keys()
    for name, weight in weights.items():
        assert found[name].dtype == np.float32
        step = np.abs(weight).max() / 127  # Q8_0 keeps 8 bits a value, of the largest in each block of 32
        assert np.abs(found[name] - weight).max() <= (step if "_proj" in name else 0), name


def test_shape_and_constants_are_read(gguf_path: Path) -> None:
    shape = GgufModel(gguf_path).shape
    assert (shape.layers, shape.hidden, shape.intermediate) == (2, 64, 96)
    assert (shape.heads, shape.kv_heads, shape.head_dim) == (4, 2, 16)
    assert (shape.context, shape.rope_theta) == (256, 50000.0)
    assert shape.rms_norm_eps == 1e-5
    assert shape.tied


def test_vocabulary_makes_a_byte_level_tokenizer(gguf_path: Path) -> None:
    vocabulary = GgufModel(gguf_path).read_vocabulary()
    assert vocabulary.control_ids == (0, 1, 2)
    tokenizer = build_tokenizer(vocabulary)
    encoding = tokenizer.encode("<|im_start|>hello the<|im_end|>")
    assert encoding.tokens == ["<|im_start|>", "he", "l", "l", "o", "Ġthe", "<|im_end|>"]
    assert tokenizer.decode(encoding.ids) == "hello the"


@given(heads=st.integers(1, 4), half=st.integers(1, 4), columns=st.integers(1, 3))
def test_undone_order_puts_each_half_of_a_head_together(heads: int, half: int, columns: int) -> None:
    rows = heads * half * 2
    pairs = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)
    halves = unpermute(pairs, heads)
    for row in range(rows):
        head, place = divmod(row, half * 2)
        which, offset = divmod(place, half)
        assert (halves[row] == pairs[head * half * 2 + offset * 2 + which]).all()


@pytest.mark.parametrize("name", ["blk.0.attn_q.bias", "blk.0.ffn_gate_exps.weight", "rope_freqs.weight", "blk.x"])
def test_tensors_of_other_architectures_have_no_name(name: str) -> None:
    assert hugging_face_name(name) is None


def test_an_unknown_tensor_is_refused(tmp_path: Path, weights: Weights) -> None:
    odd = weights | {"model.layers.0.attn_sinks": np.zeros(64, np.float32)}
    path = write_gguf(tmp_path / "odd.gguf", odd)
    with pytest.raises(UnsupportedGgufError, match=r"unknown tensor blk\.0\.attn_sinks"):
        list(GgufModel(path).tensors())


def test_another_architecture_is_refused(tmp_path: Path, weights: Weights) -> None:
    path = write_gguf(tmp_path / "qwen.gguf", weights, architecture="qwen2")
    with pytest.raises(UnsupportedGgufError, match=r"general\.architecture is 'qwen2', expected 'llama'"):
        GgufModel(path)


def test_a_file_that_is_no_gguf_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "text.gguf"
    path.write_bytes(b"this is not a model" * 10)
    with pytest.raises(UnsupportedGgufError, match=r"text\.gguf"):
        GgufModel(path)
