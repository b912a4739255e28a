"""What is packed of checkpoints in 8 bits: integers as they are stored, FP8 as what it stands for."""

import ctypes
import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import structlog.testing
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file

from copydesk.inference.engine.compiled import load_library
from copydesk.inference.engine.native.config import ModelConfig, read_config
from copydesk.inference.engine.native.int8 import block as block_module
from copydesk.inference.engine.native.int8.decoder import Int8Decoder
from copydesk.inference.engine.native.int8.packing import Packer, block_size, shape_of
from copydesk.inference.engine.native.layout import Run
from copydesk.inference.quantisation.scheme import Quantisation, Scheme, WeightScale
from tests.fixtures.quantised_model import Tensors, every, multiplied_out, quantised_copy
from tests.unit.engine.reference import write_reference

TOKENS = [5, 17, 3, 60, 9, 33, 2, 71]
Integers = NDArray[np.int8]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("plain")
    write_reference("plain", directory)
    return directory


def packed(directory: Path) -> bytes:
    """The whole block."""
    config = read_config(directory)
    library = load_library()
    memory = mmap.mmap(-1, block_size(library, shape_of(config)))
    Packer(library, config, directory).fill(ctypes.addressof(ctypes.c_char.from_buffer(memory)))
    return bytes(memory)


class Unpacking:
    """Takes a block apart as csrc/int8_model.hpp describes it."""

    def __init__(self, block: bytes) -> None:
        self._block = np.frombuffer(block, np.uint8)
        self._place = 0

    def take(self, count: int, dtype: Any) -> NDArray[Any]:
        size = count * np.dtype(dtype).itemsize
        found: NDArray[Any] = self._block[self._place : self._place + size].view(dtype)
        self._place += -(-size // 64) * 64
        return found

    def linear(self, outputs: int, inputs: int) -> tuple[Integers, NDArray[np.float32], NDArray[np.int32]]:
        rows, columns = -(-outputs // 32) * 32, -(-inputs // 64) * 64
        tiles = self.take(rows * columns, np.int8).reshape(rows // 16, columns // 4, 16, 4)
        weight = tiles.transpose(0, 2, 1, 3).reshape(rows, columns)
        assert not weight[outputs:].any()
        assert not weight[:, inputs:].any()
        scale, sums = self.take(rows, np.float32), self.take(rows, np.int32)
        return weight[:outputs, :inputs], scale[:outputs], sums[:outputs]


Linear = tuple[Integers, NDArray[np.float32], NDArray[np.int32]]


def layers(block: bytes, config: ModelConfig) -> list[dict[str, Linear]]:
    """The parts of every layer by their names in a checkpoint."""
    unpacking, found = Unpacking(block), []
    queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
    for _ in range(config.layers):
        for _ in range(2):
            unpacking.take(config.hidden, np.float32)
        qkv = unpacking.linear(queries + 2 * keys, config.hidden)
        output = unpacking.linear(config.hidden, queries)
        gate_up = unpacking.linear(2 * config.intermediate, config.hidden)
        down = unpacking.linear(config.hidden, config.intermediate)
        places = np.arange(2 * config.intermediate).reshape(-1, 2, 16)
        rows = {
            "self_attn.q_proj": (qkv, np.arange(queries)),
            "self_attn.k_proj": (qkv, np.arange(queries, queries + keys)),
            "self_attn.v_proj": (qkv, np.arange(queries + keys, queries + 2 * keys)),
            "self_attn.o_proj": (output, np.arange(config.hidden)),
            "mlp.gate_proj": (gate_up, places[:, 0].flatten()),
            "mlp.up_proj": (gate_up, places[:, 1].flatten()),
            "mlp.down_proj": (down, np.arange(config.hidden)),
        }
        found.append({name: tuple(part[at] for part in linear) for name, (linear, at) in rows.items()})
    return found  # type: ignore[return-value]


@pytest.mark.parametrize("scale_dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("weight_scale", WeightScale)
def test_integers_and_scales_are_packed_bit_for_bit_as_they_are_stored(
    plain: Path, tmp_path: Path, weight_scale: WeightScale, scale_dtype: torch.dtype
) -> None:
    def use_the_whole_range(tensors: Tensors) -> None:
        for name, tensor in tensors.items():
            if tensor.dtype == torch.int8:
                tensor[0, :2] = torch.tensor([-128, 127])
            elif name.endswith("_scale") and scale_dtype == torch.float32:
                tensor.mul_(1.001)  # no longer a number of bfloat16

    path = quantised_copy(
        plain,
        tmp_path / "q",
        every(Scheme.INT8, weight_scale),
        scale_dtype=scale_dtype,
        damage=use_the_whole_range,
    )
    stored = load_file(path / "model.safetensors")
    config = read_config(path)
    for index, layer in enumerate(layers(packed(path), config)):
        for name, (weight, scale, sums) in layer.items():
            module = f"model.layers.{index}.{name}"
            integers = stored[module + ".weight"].numpy()
            np.testing.assert_array_equal(weight, integers)
            scales = stored[module + ".weight_scale"].float().flatten().numpy()
            np.testing.assert_array_equal(scale, np.broadcast_to(scales, len(scale)))
            np.testing.assert_array_equal(sums, integers.sum(1, dtype=np.int32))


KEEP = {"nothing": (), "attention": ("re:.*self_attn.*",), "one matrix": ("model.layers.0.mlp.up_proj",)}


@pytest.mark.parametrize("keep", KEEP.values(), ids=KEEP)
@pytest.mark.parametrize("weight_scale", WeightScale)
def test_fp8_is_packed_as_the_weights_that_it_stands_for(
    plain: Path, tmp_path: Path, weight_scale: WeightScale, keep: tuple[str, ...]
) -> None:
    """Whether kept or not: this decoder has integers alone."""
    quantisation = every(Scheme.FP8, weight_scale, *keep)
    twin = multiplied_out(plain, tmp_path / "twin", quantisation)
    assert packed(quantised_copy(plain, tmp_path / "q", quantisation)) == packed(twin)


def test_every_number_of_fp8_is_read(plain: Path, tmp_path: Path) -> None:
    numbers = torch.arange(256, dtype=torch.int16).to(torch.uint8)
    numbers = numbers[(numbers & 0x7F) != 0x7F]  # all but what is no number

    def put_all(tensors: Tensors) -> None:
        down = tensors["model.layers.0.mlp.down_proj.weight"].view(torch.uint8).flatten()
        down[: len(numbers)] = numbers

    path = quantised_copy(plain, tmp_path / "q", every(Scheme.FP8), damage=put_all)
    stored = load_file(path / "model.safetensors")
    module = "model.layers.0.mlp.down_proj"
    exact = stored[module + ".weight"].float() * stored[module + ".weight_scale"].float()
    weight, scale, _ = layers(packed(path), read_config(path))[0]["mlp.down_proj"]
    expected_scale = exact.abs().amax(1).numpy() / np.float32(127)
    np.testing.assert_array_equal(scale, expected_scale)
    np.testing.assert_array_equal(weight, np.rint(exact.numpy() / expected_scale[:, None]))


def scores(decoder: Int8Decoder) -> NDArray[np.float32]:
    return decoder.run([Run(0, 0, 0, TOKENS, len(TOKENS), True)]).scores[0]


def open_decoder(directory: Path, **more: Any) -> Int8Decoder:
    return Int8Decoder(load_library(), directory, read_config(directory), slots=1, context=32, threads=1, **more)


def test_packed_files_are_kept_apart_by_how_a_checkpoint_is_read(
    plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if nothing that a file system tells of the checkpoint has changed."""
    monkeypatch.setattr(block_module, "_WORTH_A_FILE", 1)
    path = quantised_copy(plain, tmp_path / "q", every(Scheme.INT8))
    folder = tmp_path / "packed"
    read = read_config(path)
    fills: list[str] = []
    for read_as in (repr(read.quantisation), repr(None), repr(read.quantisation)):
        size = block_size(load_library(), shape_of(read))

        def fill(_: int, read_as: str = read_as) -> None:
            fills.append(read_as)

        block_module.packed_block(path, size, fill, folder, read_as=read_as)
    assert fills == [repr(read.quantisation), repr(None)]
    assert repr(every(Scheme.INT8)) != repr(every(Scheme.INT8, WeightScale.TENSOR))


def test_a_quantised_checkpoint_is_served_from_a_file_as_from_memory(
    plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = quantised_copy(plain, tmp_path / "q", every(Scheme.INT8), shards=2)
    in_memory = scores(open_decoder(path, folder=tmp_path / "none"))
    monkeypatch.setattr(block_module, "_WORTH_A_FILE", 1)
    for _ in range(2):
        np.testing.assert_array_equal(scores(open_decoder(path, folder=tmp_path / "packed")), in_memory)


def test_a_decoder_says_that_it_rounds_what_the_checkpoint_keeps(plain: Path, tmp_path: Path) -> None:
    keep = ("re:.*self_attn.*", "model.layers.2.mlp.down_proj")
    path = quantised_copy(plain, tmp_path / "q", every(Scheme.FP8, WeightScale.CHANNEL, *keep))
    with structlog.testing.capture_logs() as events:
        open_decoder(path)
    said = [event for event in events if event["event"] == "int8_rounds_weights_kept_in_the_checkpoint"]
    assert [(event["modules"], event["first"]) for event in said] == [(13, "model.layers.0.self_attn.q_proj")]
    with structlog.testing.capture_logs() as events:
        open_decoder(quantised_copy(plain, tmp_path / "all", every(Scheme.INT8)))
    assert not [event for event in events if event["event"] == "int8_rounds_weights_kept_in_the_checkpoint"]


def test_a_head_in_8_bits_is_packed_as_it_is(plain: Path, tmp_path: Path) -> None:
    quantisation = Quantisation(Scheme.INT8, WeightScale.CHANNEL, ())
    path = quantised_copy(plain, tmp_path / "q", quantisation)
    stored = load_file(path / "model.safetensors")["lm_head.weight"].numpy()
    assert stored.astype(np.int8).tobytes() not in packed(path)  # it is laid out in tiles
    config = read_config(path)
    unpacking = Unpacking(packed(path))
    for _ in range(config.layers):
        queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
        for _ in range(2):
            unpacking.take(config.hidden, np.float32)
        unpacking.linear(queries + 2 * keys, config.hidden)
        unpacking.linear(config.hidden, queries)
        unpacking.linear(2 * config.intermediate, config.hidden)
        unpacking.linear(config.hidden, config.intermediate)
    unpacking.take(config.hidden, np.float32)
    weight, _, _ = unpacking.linear(config.vocabulary, config.hidden)
    np.testing.assert_array_equal(weight, stored)
