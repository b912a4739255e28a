"""Answers that are remembered, weights that are no numbers, and folders that are replaced."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import save_file

from copydesk.cli.onboarding.answers import RememberingSubject, answers_path
from copydesk.cli.onboarding.finite import BadTensor, bad_tensors
from copydesk.cli.onboarding.ledger import LedgerError
from copydesk.cli.onboarding.real_tools import replace_directory
from tests.unit.onboarding.found_things import Said


class Counting:
    """Shouts, and counts what it was asked."""

    def __init__(self) -> None:
        self.name = "shouting"
        self.facts: dict[str, str] = {}
        self.asked: list[str] = []

    def correct(self, texts: Sequence[str]) -> list[Said]:
        self.asked += texts
        return [Said(text.upper()) for text in texts]


def remembering(path: Path, model: Counting) -> RememberingSubject:
    return RememberingSubject("shouting", {}, path, lambda: model)


def test_only_what_is_new_is_asked(tmp_path: Path) -> None:
    path = answers_path(tmp_path / "answers", "ab" * 32, "int8", "a processor")
    remembering(path, Counting()).correct(["a", "b"])
    model = Counting()
    again = remembering(path, model)
    assert [answer.text for answer in again.correct(["b", "c", "a", "c"])] == ["B", "C", "A", "C"]
    assert model.asked == ["c"]


def test_a_line_that_was_cut_short_is_asked_again_and_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    remembering(path, Counting()).correct(["a", "b"])
    path.write_bytes(path.read_bytes()[:-7])
    model = Counting()
    assert [answer.text for answer in remembering(path, model).correct(["a", "b"])] == ["A", "B"]
    assert model.asked == ["b"]
    assert remembering(path, Counting()).known == 2


def test_answers_that_cannot_be_kept_end_it(tmp_path: Path) -> None:
    path = tmp_path / "answers"
    path.write_text("a file where the folder should be")
    with pytest.raises(LedgerError):
        remembering(path / "x.jsonl", Counting()).correct(["a"])


def test_weights_that_are_no_numbers_are_found(tmp_path: Path) -> None:
    good = np.array([1.0, -448.0, 3e38], dtype=np.float32)
    bad = np.array([np.nan, 1.0, -np.inf], dtype=np.float32)
    tensors: dict[str, NDArray[Any]] = {
        "good": good,
        "bad": bad,
        "half": bad.astype(np.float16),
        "brain": bad.astype(ml_dtypes.bfloat16),
        "integers": np.full(3, -1, dtype=np.int8),
    }
    save_file(tensors, tmp_path / "model.safetensors")
    found = {one.name: one.values for one in bad_tensors(tmp_path)}
    assert found == {"bad": 2, "half": 2, "brain": 2}
    assert BadTensor(name="bad", values=2) in bad_tensors(tmp_path)


def test_a_pipe_among_the_weights_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "extra.safetensors")
    assert bad_tensors(tmp_path) == []


def test_a_folder_is_replaced_whole(tmp_path: Path) -> None:
    old, new = tmp_path / "model", tmp_path / "made"
    old.mkdir()
    (old / "left.txt").write_text("of the model before")
    new.mkdir()
    (new / "config.json").write_text("{}")
    replace_directory(new, old)
    assert [path.name for path in old.iterdir()] == ["config.json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["made", "model"]


def test_a_folder_that_cannot_be_filled_stays_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(source: str, target: str) -> None:
        raise OSError(28, "No space left on device")

    old, new = tmp_path / "model", tmp_path / "made"
    for folder in (old, new):
        folder.mkdir()
        (folder / "config.json").write_text(folder.name)
    monkeypatch.setattr("copydesk.cli.onboarding.real_tools._link_or_copy", full)
    with pytest.raises(OSError, match="No space left"):
        replace_directory(new, old)
    assert (old / "config.json").read_text() == "model"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["made", "model"]
