"""A bad setting names its variable, its value and what was expected, and ends the process with status 2."""

from __future__ import annotations

import pytest
from pydantic import Field, SecretStr, ValidationError

from copydesk.common.settings import (
    ServiceSettings,
    load_settings,
    take_no_arguments,
    unknown_settings,
    variable_name,
)


class DemoSettings(ServiceSettings, env_prefix="COPYDESK_DEMO_"):
    port: int = Field(8080, ge=0, le=65535, description="TCP port; 8080 because browsers try it")
    debounce_ms: int = Field(50, ge=0, description="milliseconds")
    hosts: list[str] = Field(default_factory=list, description="a JSON list of hosts")
    rpc_token: str = Field("", max_length=8, description="shared secret")
    api: SecretStr = Field(SecretStr(""), max_length=8, description="another secret")


class NeedySettings(ServiceSettings, env_prefix="COPYDESK_NEEDY_"):
    model_dir: str = Field(description="directory of the model")


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for cls in (DemoSettings, NeedySettings):
        for field in cls.model_fields:
            monkeypatch.delenv(variable_name(cls, field), raising=False)


def complaints(capsys: pytest.CaptureFixture[str], **overrides: object) -> list[str]:
    with pytest.raises(SystemExit) as caught:
        load_settings(DemoSettings, warn=True, **overrides)
    assert caught.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err.splitlines()


def test_defaults_hold_without_an_environment() -> None:
    assert load_settings(DemoSettings).port == 8080


def test_the_environment_wins_over_defaults_and_overrides_over_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COPYDESK_DEMO_PORT", "9000")
    assert load_settings(DemoSettings).port == 9000
    assert load_settings(DemoSettings, port=9001).port == 9001


def test_an_empty_variable_counts_as_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COPYDESK_DEMO_PORT", "")
    assert load_settings(DemoSettings).port == 8080


def test_each_bad_value_is_named_with_what_was_expected(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COPYDESK_DEMO_PORT", "many")
    monkeypatch.setenv("COPYDESK_DEMO_DEBOUNCE_MS", "-1")
    port, debounce = complaints(capsys)
    assert "COPYDESK_DEMO_PORT='many'" in port
    assert "integer" in port
    assert "browsers try it" in port
    assert "COPYDESK_DEMO_DEBOUNCE_MS='-1'" in debounce
    assert "greater than or equal to 0" in debounce


def test_a_value_that_is_no_json_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COPYDESK_DEMO_HOSTS", "a,b")
    (line,) = complaints(capsys)
    assert "hosts" in line


def test_a_missing_value_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        load_settings(NeedySettings)
    assert "COPYDESK_NEEDY_MODEL_DIR is not set" in capsys.readouterr().err


@pytest.mark.parametrize("variable", ["COPYDESK_DEMO_RPC_TOKEN", "COPYDESK_DEMO_API"])
def test_a_bad_secret_is_not_shown(
    variable: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(variable, "hunter2-hunter2")
    (line,) = complaints(capsys)
    assert variable in line
    assert "hunter2" not in line


def test_settings_do_not_change_once_loaded() -> None:
    settings = load_settings(DemoSettings)
    with pytest.raises(ValidationError):
        settings.port = 1


def test_a_misspelt_variable_is_told_with_the_one_that_comes_closest_and_without_its_value(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COPYDESK_DEMO_RPC_TOKENS", "hush")
    monkeypatch.setenv("COPYDESK_DEMO_XYLOPHONE", "1")
    assert load_settings(DemoSettings).rpc_token == ""
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "COPYDESK_DEMO_RPC_TOKENS is ignored, since there is no such setting (unknown_setting); "
        "did you mean COPYDESK_DEMO_RPC_TOKEN?",
        "COPYDESK_DEMO_XYLOPHONE is ignored, since there is no such setting (unknown_setting)",
    ]


def test_variables_of_others_settings_in_any_case_and_empty_ones_are_no_strangers() -> None:
    environ = {
        "COPYDESK_DEMO_PORT": "1",
        "copydesk_demo_hosts": "[]",
        "COPYDESK_DEMO_PROT": "",
        "COPYDESK_DEMOS_PORT": "1",
        "COPYDESK_INT8_KERNELS": "avx2",
        "COPYDESK_CACHE_DIR": "/tmp",
    }
    assert unknown_settings(DemoSettings, environ) == []
    assert unknown_settings(ServiceSettings, environ) == []


def test_a_child_repeats_no_warning_of_its_parent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COPYDESK_DEMO_PROT", "1")
    load_settings(DemoSettings, warn=False)
    assert capsys.readouterr().err == ""


def test_help_lists_every_setting_with_its_default_and_what_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        take_no_arguments(DemoSettings, ["--help"], program="python -m example", purpose="Be an example.")
    assert caught.value.code == 0
    said = capsys.readouterr().out
    assert "usage: python -m example" in said
    for name, field in DemoSettings.model_fields.items():
        assert f"{variable_name(DemoSettings, name)} [" in said
        assert (field.description or "") in " ".join(said.split())


def test_an_argument_is_refused_with_the_way_to_the_settings(capsys: pytest.CaptureFixture[str]) -> None:
    take_no_arguments(DemoSettings, [], program="example", purpose="Be an example.")
    with pytest.raises(SystemExit) as caught:
        take_no_arguments(DemoSettings, ["--port", "80"], program="example", purpose="Be an example.")
    assert caught.value.code == 2
    assert "--port is not taken: settings are environment variables" in capsys.readouterr().err
