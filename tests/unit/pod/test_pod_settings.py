import os
from pathlib import Path

import pytest
from pydantic import ValidationError

from copydesk.common.settings import load_settings
from copydesk.inference.settings import Draft, Dtype, InferenceSettings


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("COPYDESK_INFERENCE_")]:
        monkeypatch.delenv(name)


def test_a_model_directory_is_all_that_must_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COPYDESK_INFERENCE_MODEL_DIR", "/models/gec-en")
    settings = load_settings(InferenceSettings)
    assert settings.model_dir == Path("/models/gec-en")
    assert (settings.host, settings.port) == ("127.0.0.1", 0)
    assert (settings.dtype, settings.draft) == (Dtype.AUTO, Draft.AUTO)


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("DTYPE", "float16", "'auto', 'fp8', 'int8', 'bfloat16' or 'float32'"),
        ("DRAFT", "on", "'auto' or 'off'"),
        ("PORT", "70000", "less than or equal to 65535"),
        ("SLOTS", "0", "greater than or equal to 1"),
        ("MODEL", "gec.en", "'gec.en' is no valid name"),
        ("DEVICE", "null", "expected cpu, cuda, cuda:N, null:MS or null-async:MS, with commas between several"),
        ("DEVICE", "gpu", "expected cpu, cuda, cuda:N, null:MS or null-async:MS, with commas between several"),
        ("DEVICE", "cpu,null:x", "expected cpu, cuda, cuda:N, null:MS or null-async:MS, with commas"),
        ("DEVICE", "cpu,", "expected cpu, cuda, cuda:N, null:MS or null-async:MS, with commas between several"),
        ("LOG_LEVEL", "loud", "'debug', 'info', 'warning' or 'error'"),
    ],
)
def test_a_bad_value_names_its_variable_and_what_was_expected(
    variable: str,
    value: str,
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COPYDESK_INFERENCE_MODEL_DIR", "/models/gec-en")
    monkeypatch.setenv(f"COPYDESK_INFERENCE_{variable}", value)
    with pytest.raises(SystemExit) as exit_info:
        load_settings(InferenceSettings)
    assert exit_info.value.code == 2
    complaint = capsys.readouterr().err
    assert f"COPYDESK_INFERENCE_{variable}" in complaint
    assert expected in complaint


def test_zero_threads_stand_for_the_cores_of_this_process() -> None:
    settings = InferenceSettings(model_dir=Path("/models"))
    assert settings.thread_count() == len(os.sched_getaffinity(0))
    assert InferenceSettings(model_dir=Path("/models"), threads=3).thread_count() == 3


def test_threads_are_shared_out_among_the_engines_and_none_gets_none() -> None:
    shared = InferenceSettings(model_dir=Path("/models"), threads=7, engines=3)
    assert [shared.engine_threads(index) for index in range(3)] == [3, 2, 2]
    scarce = InferenceSettings(model_dir=Path("/models"), threads=1, engines=2)
    assert [scarce.engine_threads(index) for index in range(2)] == [1, 1]


def test_devices_are_dealt_out_to_the_engines_in_turn() -> None:
    settings = InferenceSettings(model_dir=Path("/models"), device="cuda:0,cuda:1", engines=3)
    assert [settings.engine_device(index) for index in range(3)] == ["cuda:0", "cuda:1", "cuda:0"]
    assert settings.engine_names() == ["engine-0", "engine-1", "engine-2"]


def test_fewer_engines_than_devices_are_a_mistake() -> None:
    with pytest.raises(ValidationError, match="expected 2 or more, since DEVICE names that many"):
        InferenceSettings(model_dir=Path("/models"), device="cuda:0,cuda:1", engines=1)
    with pytest.raises(ValidationError, match="expected 2 or more, since DEVICE names that many"):
        InferenceSettings(model_dir=Path("/models"), device="cuda:0,cuda:1")


def test_every_setting_says_what_it_is_for() -> None:
    assert [name for name, field in InferenceSettings.model_fields.items() if not field.description] == []


@pytest.mark.parametrize("device", ["cpu", "cuda", "cuda:1", "null:5", "null-async:0.5", "cuda:0,cpu,null:1"])
def test_every_device_that_the_setting_explains_is_taken(device: str) -> None:
    assert InferenceSettings(model_dir=Path("/models"), device=device, engines=3).device == device
