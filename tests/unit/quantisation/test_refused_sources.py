"""What cannot be quantised is refused with an error that says why, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from copydesk.common.errors import CopydeskError
from copydesk.inference.checkpoint.errors import CorruptCheckpointError
from copydesk.inference.checkpoint.manifest import describe, write_manifest
from copydesk.inference.correction.errors import MissingChatTemplateError
from copydesk.inference.engine.native.errors import (
    MissingTensorError,
    TensorMismatchError,
    UnreadableModelError,
    UnsupportedModelError,
)
from copydesk.inference.quantisation.conversion import quantise_directory
from copydesk.inference.quantisation.errors import (
    AlreadyQuantisedError,
    NonFiniteWeightError,
    OutputBusyError,
    OutputExistsError,
    OutputFullError,
    OutputInsideSourceError,
    OutputUnwritableError,
    PickledWeightsError,
    SourceChangedError,
    UnmatchedPatternError,
)
from copydesk.inference.quantisation.output import appearing
from copydesk.inference.quantisation.plan import PrecisionPlan
from tests.unit.quantisation.test_quantise_directory import contents, quantise, sharded

Damage = Callable[[Path], object]
UP = "model.layers.1.mlp.up_proj.weight"
WEIGHTS = "model.safetensors"


def with_config(**changes: Any) -> Damage:
    def change(source: Path) -> None:
        path = source / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return change


def with_tensors(change: Callable[[dict[str, torch.Tensor]], object]) -> Damage:
    def rewrite(source: Path) -> None:
        tensors = load_file(source / WEIGHTS)
        change(tensors)
        save_file(tensors, source / WEIGHTS)

    return rewrite


def with_value(value: float, name: str = UP) -> Damage:
    def put(tensors: dict[str, torch.Tensor]) -> None:
        tensors[name][-1] = value

    return with_tensors(put)


def cut(length: int) -> Damage:
    return lambda source: os.truncate(source / WEIGHTS, length)


def pickled(name: str) -> Damage:
    return lambda source: (source / WEIGHTS).rename(source / name)


def twice(source: Path) -> None:
    quantise(source, source.with_name("first"))
    shutil.rmtree(source)
    source.with_name("first").rename(source)


def grow(source: Path) -> None:
    with (source / WEIGHTS).open("ab") as file:
        file.write(b"\0" * 10)


def change_after_manifest(source: Path) -> None:
    write_manifest(source, describe(source, "key"))
    content = bytearray((source / WEIGHTS).read_bytes())
    content[-1] ^= 1
    (source / WEIGHTS).write_bytes(content)


def remove(source: Path, name: str) -> None:
    (source / name).unlink()


CASES: dict[str, tuple[Damage, type[CopydeskError], str]] = {
    "pickled": (pickled("pytorch_model.bin"), PickledWeightsError, "pytorch_model.bin"),
    "pickled pt": (pickled("consolidated.00.pth"), PickledWeightsError, "consolidated.00.pth"),
    "no weights": (lambda source: remove(source, WEIGHTS), UnreadableModelError, "No such file"),
    "no config": (lambda source: remove(source, "config.json"), UnreadableModelError, "No such file"),
    "broken config": (lambda s: (s / "config.json").write_text("{"), UnreadableModelError, "no JSON"),
    "deep config": (
        lambda s: (s / "config.json").write_text('{"a":' * 100_000 + "1" + "}" * 100_000),
        UnreadableModelError,
        "recursion",
    ),
    "more layers than anything": (
        with_config(num_hidden_layers=10**9),
        UnsupportedModelError,
        "num_hidden_layers",
    ),
    "cut in the header": (cut(100), UnreadableModelError, "cut short: 100 bytes do not hold its header"),
    "cut at once": (cut(3), UnreadableModelError, "cut short: 3 bytes"),
    "cut at the end": (
        lambda s: os.truncate(s / WEIGHTS, (s / WEIGHTS).stat().st_size - 1),
        UnreadableModelError,
        "cut short",
    ),
    "too long": (grow, UnreadableModelError, "describes only"),
    "another architecture": (
        with_config(architectures=["GPT2LMHeadModel"]),
        UnsupportedModelError,
        "GPT2LMHeadModel",
    ),
    "quantised": (twice, AlreadyQuantisedError, "compressed-tensors"),
    "quantised otherwise": (
        with_config(quantization_config={"quant_method": "gptq", "bits": 4}),
        AlreadyQuantisedError,
        "gptq",
    ),
    "no number": (with_value(float("nan")), NonFiniteWeightError, UP),
    "infinite": (with_value(float("-inf")), NonFiniteWeightError, "64 values"),
    "no number in a norm": (
        with_value(float("nan"), "model.norm.weight"),
        NonFiniteWeightError,
        "model.norm.weight has 1 ",
    ),
    "integers": (
        with_tensors(lambda tensors: tensors.update({UP: tensors[UP].to(torch.int16)})),
        TensorMismatchError,
        "I16",
    ),
    "another shape": (
        with_tensors(lambda tensors: tensors.update({UP: tensors[UP].T.contiguous()})),
        TensorMismatchError,
        r"\[64, 128\]",
    ),
    "a tensor too few": (with_tensors(lambda tensors: tensors.pop(UP)), MissingTensorError, UP),
    "a tensor too many": (
        with_tensors(lambda t: t.update({"model.layers.0.self_attn.q_norm.weight": torch.ones(16)})),
        TensorMismatchError,
        "q_norm",
    ),
    "changed since its manifest": (change_after_manifest, CorruptCheckpointError, "has changed"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_source_that_is_not_whole_or_not_served_is_refused(source: Path, tmp_path: Path, case: str) -> None:
    damage, error, message = CASES[case]
    damage(source)
    with pytest.raises(error, match=message):
        quantise(source, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["original"]


def shard_missing(shards: Path) -> None:
    (shards / "model-1.safetensors").unlink()


def shard_without_a_tensor(shards: Path) -> None:
    tensors = load_file(shards / "model-1.safetensors")
    tensors.pop(min(tensors))
    save_file(tensors, shards / "model-1.safetensors")


def shard_elsewhere(shards: Path) -> None:
    index = json.loads((shards / "model.safetensors.index.json").read_text())
    index["weight_map"][UP] = "../original/model.safetensors"
    (shards / "model.safetensors.index.json").write_text(json.dumps(index))


def shard_pickled(shards: Path) -> None:
    index = (shards / "model.safetensors.index.json").read_text()
    (shards / "model.safetensors.index.json").write_text(index.replace("-1.safetensors", "-1.bin"))


def shard_with_a_zero_byte(shards: Path) -> None:
    index = (shards / "model.safetensors.index.json").read_text()
    (shards / "model.safetensors.index.json").write_text(index.replace("model-1.", "model-1\\u0000."))


def shard_that_is_a_pipe(shards: Path) -> None:
    (shards / "model-1.safetensors").unlink()
    os.mkfifo(shards / "model-1.safetensors")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (shard_missing, "model-1.safetensors: No such file"),
        (shard_without_a_tensor, "has no tensor"),
        (shard_elsewhere, "names a shard"),
        (shard_pickled, "names a shard"),
        (shard_with_a_zero_byte, "null byte"),
        (shard_that_is_a_pipe, "model-1.safetensors: is no file"),
        (lambda s: os.truncate(s / "model-2.safetensors", 5000), "model-2.safetensors: cut short"),
        (lambda s: (s / "model.safetensors.index.json").write_text("[]"), "index.json"),
    ],
)
def test_shards_that_do_not_make_a_model_are_refused(
    source: Path, tmp_path: Path, damage: Damage, message: str
) -> None:
    shards = sharded(source, tmp_path / "shards")
    damage(shards)
    with pytest.raises(UnreadableModelError, match=message):
        quantise(shards, tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["original", "shards"]


def test_pickles_beside_safetensors_are_neither_read_nor_copied(source: Path, tmp_path: Path) -> None:
    (source / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    assert "pytorch_model.bin" not in contents(quantise(source, tmp_path / "out"))


def test_what_is_there_is_never_overwritten(source: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(OutputExistsError):
        quantise(source, tmp_path / "out")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(OutputExistsError):
        quantise(source, tmp_path / "link")
    assert list((tmp_path / "out").iterdir()) == []


def test_a_place_within_the_source_is_refused_however_it_is_reached(source: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(source)
    for out in (source / "out", tmp_path / "link" / "out", tmp_path / "other" / ".." / "original" / "out"):
        with pytest.raises(OutputInsideSourceError):
            quantise(source, out)
    assert not (source / "out").exists()


def test_a_folder_that_is_not_there_or_is_a_file_is_named(source: Path, tmp_path: Path) -> None:
    with pytest.raises(OutputUnwritableError, match="No such file"):
        quantise(source, tmp_path / "nowhere" / "out")
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputUnwritableError, match="Not a directory"):
        quantise(source, tmp_path / "file" / "out")


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Let the system refuse files longer than `size` bytes, as a quota would."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_that_runs_full_leaves_nothing_behind(source: Path, tmp_path: Path) -> None:
    with largest_file(100_000), pytest.raises(OutputFullError):
        quantise(source, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["original"]
    quantise(source, tmp_path / "out")


def test_a_disk_without_room_is_refused_before_anything_is_written(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage._replace(free=1 << 10))
    with pytest.raises(OutputFullError) as raised:
        quantise(source, tmp_path / "out")
    assert raised.value.free == 1 << 10
    assert raised.value.needed > (source / WEIGHTS).stat().st_size / 2
    assert [path.name for path in tmp_path.iterdir()] == ["original"]


def test_a_plan_that_fits_no_module_is_refused_first(source: Path, tmp_path: Path) -> None:
    with pytest.raises(UnmatchedPatternError):
        quantise(source, tmp_path / "out", PrecisionPlan(keep=("*.q_prj",)))
    assert [path.name for path in tmp_path.iterdir()] == ["original"]


def test_a_model_that_cannot_be_asked_gets_no_report_and_is_told_at_once(source: Path, tmp_path: Path) -> None:
    (source / "chat_template.jinja").unlink()
    with pytest.raises(MissingChatTemplateError):
        quantise_directory(source, tmp_path / "out", PrecisionPlan())
    assert not (tmp_path / "out").exists()
    quantise(source, tmp_path / "out")


def test_whatever_stops_it_leaves_nothing_behind(source: Path, tmp_path: Path) -> None:
    def interrupt(_stage: str, share: float) -> None:
        if share > 0.5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quantise_directory(source, tmp_path / "out", PrecisionPlan(), interrupt, measure=False)
    assert [path.name for path in tmp_path.iterdir()] == ["original"]


def test_what_a_killed_process_left_is_cleared_by_the_next(source: Path, tmp_path: Path) -> None:
    left = tmp_path / ".out.partial"
    left.mkdir()
    (left / "model.safetensors").write_bytes(b"half")
    (left / "stray").write_bytes(b"")
    assert contents(quantise(source, tmp_path / "out")) == contents(quantise(source, tmp_path / "again"))
    assert not left.exists()


def test_two_that_write_to_one_place_do_not_mix(source: Path, tmp_path: Path) -> None:
    with appearing(tmp_path / "out", 0) as scratch:
        with pytest.raises(OutputBusyError):
            quantise(source, tmp_path / "out")
        (scratch / "mine").write_text("whole")
    assert contents(tmp_path / "out") == {"mine": b"whole"}


def test_what_appears_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    with pytest.raises(OutputExistsError), appearing(tmp_path / "out", 0):
        (tmp_path / "out").mkdir()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_source_that_changes_while_it_is_read_makes_nothing(source: Path, tmp_path: Path) -> None:
    def progress(stage: str, share: float) -> None:
        if stage == "quantising" and share > 0.5:
            (source / "tokenizer.json").write_bytes((source / "tokenizer.json").read_bytes() + b"\n")

    with pytest.raises(SourceChangedError, match=r"tokenizer.json was changed while it was read"):
        quantise_directory(source, tmp_path / "out", PrecisionPlan(), progress, measure=False)
    assert [path.name for path in tmp_path.iterdir()] == ["original"]


@pytest.mark.parametrize("name", [b"\xff.json", b"a\nb.json"])
def test_files_with_names_that_are_no_text_are_refused(source: Path, tmp_path: Path, name: bytes) -> None:
    (source / os.fsdecode(name)).write_text("{}")
    with pytest.raises(UnreadableModelError, match="its name"):
        quantise(source, tmp_path / "out")


def test_nothing_is_removed_through_a_link_in_place_of_the_scratch_directory(source: Path, tmp_path: Path) -> None:
    treasure = tmp_path / "elsewhere" / "treasure"
    treasure.parent.mkdir()
    treasure.write_text("mine")
    (tmp_path / ".out.partial").symlink_to(treasure.parent)
    with pytest.raises(OutputUnwritableError):
        quantise(source, tmp_path / "out")
    assert treasure.read_text() == "mine"
