"""Files of weights: bounded, aligned, and what the safetensors library reads."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open

from copydesk.inference.quantisation.shards import (
    ITEM_BYTES,
    Entry,
    ShardFiles,
    index_name,
    index_of,
    lay_out,
)

SHAPES = st.lists(st.integers(1, 5), min_size=1, max_size=2).map(tuple)


@st.composite
def units(draw: st.DrawFn) -> list[tuple[Entry, ...]]:
    sizes = draw(st.lists(st.integers(1, 2), min_size=1, max_size=12))
    names = iter(f"tensor.{number}" for number in range(24))
    return [
        tuple(Entry(next(names), draw(st.sampled_from(sorted(ITEM_BYTES))), draw(SHAPES)) for _ in range(size))
        for size in sizes
    ]


@given(units(), st.integers(1, 200), st.booleans())
def test_files_are_bounded_whole_and_aligned(
    content: list[tuple[Entry, ...]], limit: int, always_split: bool
) -> None:
    shards = lay_out(content, limit, always_split=always_split)
    assert [name for shard in shards for name in sorted(shard.offsets)] != []
    entries = {entry.name: entry for unit in content for entry in unit}
    assert sorted(name for shard in shards for name in shard.offsets) == sorted(entries)
    for shard in shards:
        of_shard = [unit for unit in content if unit[0].name in shard.offsets]
        assert all(entry.name in shard.offsets for unit in of_shard for entry in unit), "a unit was torn apart"
        size = sum(entry.size for unit in of_shard for entry in unit)
        assert shard.size == len(shard.header) + size
        assert size <= limit or len(of_shard) == 1
        for name, offset in shard.offsets.items():
            assert offset % ITEM_BYTES[entries[name].dtype] == 0
    assert index_of(shards)["weight_map"].keys() == entries.keys()
    assert (index_name(shards) is None) == (len(shards) == 1 and not always_split)


def test_what_is_put_in_pieces_and_in_any_order_is_read_by_the_library(tmp_path: Path) -> None:
    entries = [Entry("b", "F32", (2, 3)), Entry("a", "I8", (4,)), Entry("c", "F8_E4M3", (2, 2))]
    (shard,) = lay_out([entries], 1000, always_split=False)
    numbers = np.arange(6, dtype=np.float32).reshape(2, 3)
    with ShardFiles(tmp_path, [shard]) as files:
        files.put("a", np.array([1, -1, 127, 0], np.int8))
        files.put("c", bytearray(b"\x38\x40\x00\xb8"))
        end = files.put("b", bytearray(numbers.tobytes()[:8]))
        assert files.put("b", bytearray(numbers.tobytes()[8:]), end) == 24
    assert (tmp_path / "model.safetensors").stat().st_size == shard.size
    with safe_open(tmp_path / "model.safetensors", framework="pt") as file:
        assert file.get_tensor("a").tolist() == [1, -1, 127, 0]
        assert file.get_tensor("b").tolist() == numbers.tolist()
        assert file.get_tensor("c").float().tolist() == [[1.0, 2.0], [0.0, -1.0]]
        assert file.metadata() == {"format": "pt"}


def test_the_index_names_the_file_of_each_tensor() -> None:
    shards = lay_out([[Entry("x", "I8", (8,))], [Entry("y", "BF16", (4,))]], 8, always_split=True)
    assert [shard.name for shard in shards] == [f"model-0000{n}-of-00002.safetensors" for n in (1, 2)]
    assert json.loads(json.dumps(index_of(shards))) == {
        "metadata": {"total_size": 16},
        "weight_map": {"x": shards[0].name, "y": shards[1].name},
    }
