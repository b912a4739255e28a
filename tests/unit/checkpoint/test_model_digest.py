from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from copydesk.inference.checkpoint.errors import CorruptCheckpointError
from copydesk.inference.checkpoint.manifest import (
    MANIFEST,
    check_sizes,
    describe,
    read_digest,
    write_manifest,
)
from tests.fixtures.tiny_model import write_tiny_model


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_tiny_model(tmp_path / "model", layers=1)


def test_the_same_files_have_the_same_digest_wherever_they_lie(model: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(model, tmp_path / "copy")
    assert read_digest(copy) == read_digest(model)
    assert len(read_digest(model)) == 64


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json", "chat_template.jinja"])
def test_any_file_with_a_say_in_the_answers_changes_the_digest(model: Path, name: str) -> None:
    before = read_digest(model)
    content = bytearray((model / name).read_bytes())
    content[-1] ^= 1
    (model / name).write_bytes(content)
    assert read_digest(model) != before


def test_two_models_of_one_shape_have_different_digests(model: Path, tmp_path: Path) -> None:
    assert read_digest(write_tiny_model(tmp_path / "other", layers=1, seed=1)) != read_digest(model)


def test_notes_and_hidden_files_do_not_count(model: Path) -> None:
    before = read_digest(model)
    (model / "README.md").write_text("notes", encoding="utf-8")
    (model / ".cache.json").write_text("{}", encoding="utf-8")
    assert read_digest(model) == before


def test_a_manifest_answers_with_what_reading_all_would(model: Path) -> None:
    by_reading = read_digest(model)
    write_manifest(model, describe(model, "key"))
    assert check_sizes(model).digest == read_digest(model) == by_reading


def test_a_manifest_that_no_longer_fits_is_not_believed(model: Path) -> None:
    write_manifest(model, describe(model, "key"))
    before = read_digest(model)
    (model / "chat_template.jinja").write_text("{{ messages[0].content }}", encoding="utf-8")
    assert read_digest(model) != before
    (model / MANIFEST).write_bytes(b"\xff")
    assert read_digest(model) != before


def test_a_folder_without_a_model_has_no_digest(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(CorruptCheckpointError, match=r"there is no config\.json"):
            read_digest(folder)
