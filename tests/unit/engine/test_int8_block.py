"""The packed weights: kept as a file that is whole or not there, shared by all who serve it."""

import ctypes
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from copydesk.inference.engine.native.int8 import block as module
from copydesk.inference.engine.native.int8.block import packed_block

SIZE = 20_000
CONTENT = bytes(index % 251 for index in range(SIZE))


class Packing:
    """Fills a block with known bytes, and counts how often."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self, address: int) -> None:
        self.times += 1
        assert ctypes.string_at(address, SIZE) == bytes(SIZE)
        ctypes.memmove(address, CONTENT, SIZE)


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(module, "_WORTH_A_FILE", 1)
    directory = tmp_path / "model"
    directory.mkdir()
    (directory / "config.json").write_text("{}")
    (directory / "model.safetensors").write_bytes(b"weights")
    return directory


def content(directory: Path, fill: Callable[[int], None], folder: Path) -> bytes:
    block = packed_block(directory, SIZE, fill, folder)
    return ctypes.string_at(block.address, SIZE)


def names(folder: Path) -> list[str]:
    """The kinds of files in the folder, but for the lock."""
    return [path.suffix or path.name for path in folder.iterdir() if path.name != "lock"]


def test_what_a_killed_process_left_is_removed(model: Path, tmp_path: Path) -> None:
    (tmp_path / "packed").mkdir()
    (tmp_path / "packed" / ".packing-abc").write_bytes(b"half")
    content(model, Packing(), tmp_path / "packed")
    assert names(tmp_path / "packed") == [".int8"]


def test_a_second_start_packs_nothing(model: Path, tmp_path: Path) -> None:
    packing = Packing()
    for _ in range(3):
        assert content(model, packing, tmp_path / "packed") == CONTENT
    assert packing.times == 1
    assert names(tmp_path / "packed") == [".int8"]


def test_of_many_that_start_at_once_one_packs_for_all(model: Path, tmp_path: Path) -> None:
    packing = Packing()
    together = threading.Barrier(4)

    def start(_: int) -> bytes:
        together.wait(10)
        return content(model, packing, tmp_path / "packed")

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(start, range(4))) == {CONTENT}
    assert packing.times == 1


def test_other_weights_are_packed_anew(model: Path, tmp_path: Path) -> None:
    packing = Packing()
    content(model, packing, tmp_path / "packed")
    (model / "model.safetensors").write_bytes(b"others!")
    content(model, packing, tmp_path / "packed")
    assert packing.times == 2


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: os.truncate(path, SIZE),
        lambda path: os.truncate(path, 3),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:-1] + b"\xff"),
        lambda path: path.write_bytes(b"x" + path.read_bytes()[1:]),
    ],
    ids=["truncated", "no header", "empty", "a flipped byte", "no magic"],
)
def test_a_damaged_file_is_never_used(damage: Callable[[Path], None], model: Path, tmp_path: Path) -> None:
    packing = Packing()
    content(model, packing, tmp_path / "packed")
    damage(next((tmp_path / "packed").glob("*.int8")))
    assert content(model, packing, tmp_path / "packed") == CONTENT
    assert packing.times == 2
    assert content(model, packing, tmp_path / "packed") == CONTENT
    assert packing.times == 2


def test_without_a_folder_to_write_to_weights_are_packed_into_memory(model: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    packing = Packing()
    assert content(model, packing, tmp_path / "file" / "packed") == CONTENT


def test_a_full_disk_leaves_nothing_behind(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    packing = Packing()
    assert content(model, packing, tmp_path / "packed") == CONTENT
    assert names(tmp_path / "packed") == []


def test_packing_that_fails_leaves_nothing_behind(model: Path, tmp_path: Path) -> None:
    def fail(_: int) -> None:
        raise ValueError("a tensor is missing")

    with pytest.raises(ValueError, match="a tensor is missing"):
        content(model, fail, tmp_path / "packed")
    assert names(tmp_path / "packed") == []


def test_only_the_files_used_last_are_kept(model: Path, tmp_path: Path) -> None:
    for number in range(7):
        (model / "config.json").write_text("{}" + " " * number)
        content(model, Packing(), tmp_path / "packed")
        newest = max((tmp_path / "packed").glob("*.int8"), key=lambda path: path.stat().st_mtime_ns)
        os.utime(newest, (number, number))
    assert len(names(tmp_path / "packed")) == 4


def test_small_weights_are_not_worth_a_file(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_WORTH_A_FILE", 1 << 20)
    assert content(model, Packing(), tmp_path / "packed") == CONTENT
    assert not (tmp_path / "packed").exists()
