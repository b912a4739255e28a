"""A checkpoint that somebody made to hurt: safetensors headers, config.json, GGUF."""

from __future__ import annotations

import contextlib
import functools
import json
import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from copydesk.cli.onboarding.finite import bad_tensors
from copydesk.common.errors import CopydeskError
from copydesk.inference.checkpoint.errors import UnsupportedGgufError
from copydesk.inference.checkpoint.gguf import GgufModel
from copydesk.inference.engine.native.checkpoint import CheckpointReader
from copydesk.inference.engine.native.config import read_config
from copydesk.inference.engine.native.errors import ModelError
from copydesk.inference.engine.native.files import SINGLE
from copydesk.inference.engine.native.tensors import StoredTensors
from copydesk.inference.inspection.headers import HeaderError, read_header
from copydesk.inference.quantisation.source import open_source
from tests.fuzz.corpus import cases, effort
from tests.fuzz.hostile_bytes import damaged
from tests.unit.checkpoint.tiny_gguf import random_weights, write_gguf

DATA = 256
DESCRIBED = 6_000
"""Of a small GGUF file, the bytes in which all that it describes lies."""

sizes = st.integers(-2, 16) | st.sampled_from([1 << 31, 1 << 40, 1 << 63, 1 << 64, -(1 << 63)])
odd: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | st.floats() | st.text(max_size=4) | st.lists(sizes, max_size=3)
)
entries = st.fixed_dictionaries(
    {},
    optional={
        "dtype": st.sampled_from(["F32", "BF16", "F16", "F8_E4M3", "I8", "I64", "F4", "X", ""]) | odd,
        "shape": st.lists(sizes, max_size=4) | odd,
        "data_offsets": st.lists(sizes, min_size=1, max_size=3) | odd,
    },
)
names = st.sampled_from(["model.norm.weight", "model.norm.weight_scale", "", "é" * 9, "__metadata__"])
headers = st.dictionaries(names, entries | odd, max_size=4)


@st.composite
def sound(draw: st.DrawFn) -> dict[str, Any]:
    """A header that is right."""
    header: dict[str, Any] = {}
    end = 0
    for name in draw(st.lists(names.filter(lambda name: name != "__metadata__"), unique=True, max_size=3)):
        shape = draw(st.lists(st.integers(0, 4), max_size=3))
        size = math.prod(shape) * 4
        if end + size <= DATA:
            header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [end, end + size]}
            end += size
    return header


def file_of(header: Any, told: int | None = None) -> bytes:
    text = json.dumps(header).encode()
    return (len(text) if told is None else told).to_bytes(8, "little") + text + bytes(range(DATA))


files = st.builds(file_of, headers | sound(), st.none() | st.sampled_from([0, 7, 1 << 20, (1 << 64) - 1]))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def check_safetensors(folder: Path, content: bytes) -> None:
    """Each reader takes it or refuses it with its error, and what it takes lies within the file."""
    (folder / SINGLE).write_bytes(content)
    stored = []
    with contextlib.suppress(HeaderError):
        stored = read_header(folder / SINGLE)
        assert all(0 <= one.first <= one.last <= len(content) for one in stored)
    with contextlib.suppress(HeaderError):
        bad_tensors(folder)
    with contextlib.suppress(ModelError):
        opened = StoredTensors(folder)
        for one in stored:
            with contextlib.suppress(ModelError):
                assert int(opened.tensor(one.name, *one.shape).data.sum()) >= 0
    with contextlib.suppress(ModelError), CheckpointReader(folder, torch.float32) as reader:
        for one in stored:
            with contextlib.suppress(ModelError):
                assert reader.tensor(one.name, *one.shape).numel() == one.numbers


@effort(120)
@given(content=damaged(files, most=2) | st.binary(max_size=40))
def test_weights_are_read_or_refused_with_a_typed_error(folder: Path, content: bytes) -> None:
    check_safetensors(folder, content)


@pytest.mark.parametrize(("name", "content"), cases("safetensors"))
def test_weights_that_were_kept(folder: Path, name: str, content: bytes) -> None:
    check_safetensors(folder, content)


CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "quantization_config": {
        "quant_method": "compressed-tensors",
        "format": "float-quantized",
        "ignore": ["lm_head", "re:.*layers\\.0.*"],
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "channel"},
            }
        },
    },
}
values: st.SearchStrategy[Any] = (
    odd | sizes | st.just({}) | st.sampled_from(["llama3", "yarn", "re:(a+)+$", "re:[", "gelu", "tensor"])
)


@st.composite
def configs(draw: st.DrawFn) -> dict[str, Any]:
    """The right one, with some values, at any depth, that are not."""
    config: dict[str, Any] = json.loads(json.dumps(CONFIG))
    for _ in range(draw(st.integers(0, 3))):
        place: dict[str, Any] = config
        while True:
            key = draw(st.sampled_from([*sorted(place), "rope_scaling", "rope_parameters", "head_dim"]))
            inner = place.get(key)
            if isinstance(inner, dict) and inner and draw(st.booleans()):
                place = inner
                continue
            place[key] = draw(values | st.dictionaries(st.sampled_from(["rope_type", "factor"]), values))
            break
    return config


def check_config(folder: Path, content: bytes) -> None:
    (folder / "config.json").write_bytes(content)
    with contextlib.suppress(ModelError):
        config = read_config(folder)
        assert config.heads % config.kv_heads == 0
        assert config.layers >= 1
        if config.quantisation is not None:
            config.quantisation.quantises("model.layers.0.self_attn.q_proj")
    with contextlib.suppress(CopydeskError):
        open_source(folder)


@effort(120)
@given(content=damaged(configs().map(lambda config: json.dumps(config).encode()), most=1))
def test_a_config_is_read_or_refused_with_a_typed_error(folder: Path, content: bytes) -> None:
    (folder / SINGLE).write_bytes(file_of({}))
    check_config(folder, content)


@pytest.mark.parametrize(("name", "content"), cases("model_config"))
def test_configs_that_were_kept(folder: Path, name: str, content: bytes) -> None:
    check_config(folder, content)


@functools.cache
def right_gguf() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return write_gguf(Path(folder) / "right.gguf", random_weights()).read_bytes()


def check_gguf(folder: Path, content: bytes) -> None:
    path = folder / "model.gguf"
    path.write_bytes(content)
    with contextlib.suppress(UnsupportedGgufError):
        model = GgufModel(path)
        model.read_vocabulary()
        for _, weight in model.tensors():
            assert weight.dtype == np.float32


@effort(60)
@given(head=damaged(st.builds(lambda: right_gguf()[:DESCRIBED]), most=3))
def test_a_gguf_file_is_read_or_refused_with_a_typed_error(folder: Path, head: bytes) -> None:
    check_gguf(folder, head + right_gguf()[DESCRIBED:])


@pytest.mark.parametrize(("name", "content"), cases("gguf"))
def test_gguf_files_that_were_kept(folder: Path, name: str, content: bytes) -> None:
    check_gguf(folder, content)
