from __future__ import annotations

import errno
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from copydesk.inference.checkpoint.errors import (
    CacheFullError,
    CacheUnusableError,
    CorruptCheckpointError,
    UnsupportedGgufError,
)
from copydesk.inference.checkpoint.manifest import MANIFEST
from copydesk.inference.checkpoint.store import ModelStore

KEY = "0123456789abcdef"


def build(folder: Path) -> None:
    (folder / "config.json").write_text("{}", encoding="utf-8")
    (folder / "model.safetensors").write_bytes(b"weights")


def forbidden(folder: Path) -> None:
    raise AssertionError(f"nothing was to be built in {folder}")


def obtain(store: ModelStore, how: object = build, key: str = KEY) -> Path:
    assert callable(how)
    return store.obtain("gec-en", key, how, needed_bytes=1000)


def visible(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith(".lock"))


@pytest.fixture
def store(tmp_path: Path) -> ModelStore:
    return ModelStore(tmp_path / "cache" / "models")


def test_a_model_is_built_once_and_found_again(store: ModelStore) -> None:
    directory = obtain(store)
    assert directory == store.root / "gec-en-0123456789ab"
    assert visible(directory) == ["config.json", MANIFEST, "model.safetensors"]
    assert obtain(store, forbidden) == directory
    store.verify("gec-en", KEY)


def test_other_inputs_get_a_directory_of_their_own(store: ModelStore) -> None:
    assert obtain(store) != obtain(store, key="fedcba9876543210")
    assert obtain(store, forbidden) != obtain(store, forbidden, key="fedcba9876543210")


def test_a_key_that_begins_alike_is_not_taken_for_the_same(store: ModelStore) -> None:
    obtain(store)
    assert not store.is_ready("gec-en", KEY[:12] + "0000")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("model.safetensors", b"weight"),
        ("model.safetensors", b"Weights"),
        ("model.safetensors", None),
        ("extra.safetensors", b"?"),
        (MANIFEST, b"{}"),
        (MANIFEST, b'{"key": "01234'),
        (MANIFEST, None),
    ],
)
def test_a_damaged_directory_is_built_anew(store: ModelStore, name: str, content: bytes | None) -> None:
    directory = obtain(store)
    if content is None:
        (directory / name).unlink()
    else:
        (directory / name).write_bytes(content)
    assert not store.is_ready("gec-en", KEY)
    assert obtain(store) == directory
    assert visible(directory) == ["config.json", MANIFEST, "model.safetensors"]
    assert store.is_ready("gec-en", KEY)


def test_a_changed_byte_is_found_by_a_full_check(store: ModelStore) -> None:
    directory = obtain(store)
    (directory / "model.safetensors").write_bytes(b"Weights")
    with pytest.raises(CorruptCheckpointError, match=r"the content of model\.safetensors has changed"):
        store.verify("gec-en", KEY)


def test_a_failed_build_leaves_nothing_behind(store: ModelStore) -> None:
    def fail(folder: Path) -> None:
        build(folder)
        raise UnsupportedGgufError(folder, "broken")

    with pytest.raises(UnsupportedGgufError):
        obtain(store, fail)
    assert visible(store.root) == []
    assert obtain(store).is_dir()


def test_what_a_killed_process_left_is_cleared_away(store: ModelStore) -> None:
    partial = store.root / ".gec-en-0123456789ab.partial"
    (partial / "download").mkdir(parents=True)
    (partial / "model.safetensors").write_bytes(b"half")
    directory = obtain(store)
    assert visible(store.root) == [directory.name]
    assert visible(directory) == ["config.json", MANIFEST, "model.safetensors"]


def test_a_disk_that_runs_full_is_reported_and_left_as_it_was(store: ModelStore) -> None:
    def fill(folder: Path) -> None:
        build(folder)
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(CacheFullError, match="set COPYDESK_CACHE_DIR") as caught:
        obtain(store, fill)
    assert caught.value.directory == store.root
    assert caught.value.needed == 1000
    assert visible(store.root) == []


def test_a_disk_with_too_little_space_is_not_even_tried(store: ModelStore) -> None:
    with pytest.raises(CacheFullError) as caught:
        store.obtain("gec-en", KEY, forbidden, needed_bytes=1 << 60)
    assert caught.value.free < 1 << 60


def test_a_folder_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be", encoding="utf-8")
    with pytest.raises(CacheUnusableError, match="set COPYDESK_CACHE_DIR"):
        obtain(ModelStore(tmp_path / "cache" / "models"))


def test_of_many_at_once_one_builds_and_the_others_wait(store: ModelStore) -> None:
    built: list[int] = []
    together = threading.Barrier(4)

    def count(folder: Path) -> None:
        built.append(threading.get_ident())
        build(folder)

    def ask() -> Path:
        together.wait()
        return obtain(store, count)

    with ThreadPoolExecutor(4) as pool:
        directories = {future.result() for future in [pool.submit(ask) for _ in range(4)]}
    assert len(directories) == 1
    assert len(built) == 1


def test_the_cache_folder_is_a_setting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COPYDESK_CACHE_DIR", str(tmp_path))
    assert ModelStore.from_environment().root == tmp_path / "models"
    monkeypatch.delenv("COPYDESK_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert ModelStore.from_environment().root == tmp_path / "xdg" / "copydesk" / "models"
