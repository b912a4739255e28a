import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from copydesk.common.rpc.frames import Load, Priority
from copydesk.inference.engine import GeneratedTokens, GenerateTokens
from copydesk.inference.engine.native import (
    Core,
    InvalidOptionError,
    MissingTensorError,
    NativeOptions,
    Precision,
    TensorMismatchError,
    UnreadableModelError,
    open_engine,
)
from copydesk.inference.engine.native.errors import ModelError
from tests.fixtures.tiny_model import write_tiny_model

SMALL = NativeOptions(precision=Precision.FLOAT32, slots=3, context=64, queue=5, threads=1)


def test_an_opened_engine_is_warm_and_says_its_limits(tmp_path: Path) -> None:
    engine = open_engine(write_tiny_model(tmp_path), SMALL)
    assert (engine.context, engine.capacity, engine.queue) == (64, 3, 5)
    assert engine.load().step_ms > 0
    assert (engine.load().running, engine.load().queued) == (0, 0)


@pytest.mark.parametrize("slots", [1, 2])
def test_an_engine_of_the_smallest_size_opens(slots: int, tmp_path: Path) -> None:
    options = NativeOptions(precision=Precision.FLOAT32, slots=slots, context=2, queue=0, prefill_tokens=1)
    assert open_engine(write_tiny_model(tmp_path), options).load().capacity == slots


@pytest.mark.parametrize(
    ("option", "options"),
    [
        ("context", NativeOptions(context=513)),
        ("context", NativeOptions(context=1)),
        ("slots", NativeOptions(slots=0)),
        ("queue", NativeOptions(queue=-1)),
        ("prefill_tokens", NativeOptions(prefill_tokens=0)),
        ("draft_tokens", NativeOptions(draft_tokens=-1)),
        ("threads", NativeOptions(threads=-1)),
        ("slots", NativeOptions(slots=1 << 40)),
    ],
)
def test_an_option_that_does_not_fit_is_named(option: str, options: NativeOptions, tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError) as raised:
        open_engine(write_tiny_model(tmp_path, context=512), options)
    assert raised.value.option == option


def test_a_directory_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableModelError):
        open_engine(tmp_path / "nowhere", SMALL)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"num_hidden_layers": 3}, MissingTensorError),
        ({"intermediate_size": 96}, TensorMismatchError),
        ({"attention_bias": True}, MissingTensorError),
    ],
)
def test_weights_that_are_not_what_the_configuration_says_are_refused(
    changes: dict[str, object], error: type[ModelError], tmp_path: Path
) -> None:
    path = write_tiny_model(tmp_path) / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(error):
        open_engine(tmp_path, SMALL)


def test_shards_give_the_same_answers_as_one_file(tmp_path: Path) -> None:
    whole = write_tiny_model(tmp_path / "whole")
    sharded = write_tiny_model(tmp_path / "sharded")
    tensors = load_file(sharded / "model.safetensors")
    (sharded / "model.safetensors").unlink()
    names = sorted(tensors)
    file_of = {name: f"model-{i % 3}.safetensors" for i, name in enumerate(names)}
    for file in sorted(set(file_of.values())):
        save_file({name: tensors[name] for name in names if file_of[name] == file}, sharded / file)
    (sharded / "model.safetensors.index.json").write_text(json.dumps({"weight_map": file_of}))
    assert answer(sharded) == answer(whole)


def test_the_number_of_threads_is_set_when_told(tmp_path: Path) -> None:
    torch.set_num_threads(2)
    open_engine(write_tiny_model(tmp_path), SMALL)
    assert torch.get_num_threads() == 1


def test_idle_engines_report_no_work(tmp_path: Path) -> None:
    engine = open_engine(write_tiny_model(tmp_path), SMALL)
    load = engine.load()
    assert engine.step(0.0) is False
    assert engine.load() == Load(running=0, queued=0, capacity=3, step_ms=load.step_ms)


def answer(directory: Path) -> list[int]:
    engine = open_engine(directory, SMALL)
    answers: list[GeneratedTokens] = []
    request = GenerateTokens(prompt=[5, 60, 17], max_tokens=20, stop_ids=[])
    engine.submit(request, deadline=1.0, priority=Priority.INTERACTIVE, on_done=answers.append)
    while engine.step(0.0):
        pass
    return answers[0].tokens


@pytest.mark.parametrize("device", ["null:0", "null-async:0.1"])
@pytest.mark.parametrize("core", [Core.COMPILED, Core.PYTHON])
def test_a_device_that_computes_nothing_answers_by_its_rule(device: str, core: Core, tmp_path: Path) -> None:
    options = NativeOptions(device=device, core=core, context=64, draft_tokens=0)
    engine = open_engine(write_tiny_model(tmp_path), options)
    answers: list[GeneratedTokens] = []
    request = GenerateTokens(prompt=[5], max_tokens=4, stop_ids=[])
    engine.submit(request, deadline=1.0, priority=Priority.INTERACTIVE, on_done=answers.append)
    while engine.step(0.0):
        pass
    assert answers[0].tokens == [6, 8, 11, 15]


@pytest.mark.parametrize("device", ["cuda:63", "abacus"])
def test_a_device_that_is_not_here_is_named(device: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError) as raised:
        open_engine(write_tiny_model(tmp_path), NativeOptions(device=device, context=64))
    assert (raised.value.option, raised.value.value) == ("device", device)
    assert raised.value.expected == "a device that torch finds here"
