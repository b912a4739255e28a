"""A secret may stand in a file that a variable names; what is wrong with it is told, but not what is in it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pytest
from pydantic import AfterValidator, Field, SecretStr

from copydesk.common.profile import Profile
from copydesk.common.profiled_settings import ProfiledSettings
from copydesk.common.settings import (
    LARGEST_SECRET,
    ServiceSettings,
    load_settings,
    settings_in_words,
    unknown_settings,
)


def _long_enough(value: SecretStr) -> SecretStr:
    if 0 < len(value.get_secret_value()) < 4:
        raise ValueError("expected 4 characters or more")
    return value


class VaultSettings(ServiceSettings, env_prefix="COPYDESK_VAULT_"):
    port: int = Field(80, description="TCP port")
    token: Annotated[SecretStr, AfterValidator(_long_enough)] = Field(
        SecretStr(""), description="what clients show"
    )
    other: SecretStr | None = Field(None, description="what nobody needs")


class ProfiledVaultSettings(ProfiledSettings, env_prefix="COPYDESK_VAULT_"):
    profile: Path | None = Field(None, description="a profile")
    token: SecretStr = Field(SecretStr(""), description="what clients show")

    @classmethod
    def said_by(cls, profile: Profile, path: Path) -> dict[str, object]:
        return {}


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    path = tmp_path / "token"
    monkeypatch.setenv("COPYDESK_VAULT_TOKEN_FILE", str(path))
    return path


def refused(capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as caught:
        load_settings(VaultSettings)
    assert caught.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_secret_is_read_without_the_newline_that_an_editor_leaves(
    named: Path, end: str, capsys: pytest.CaptureFixture[str]
) -> None:
    named.write_bytes(f" sesame 1{end}".encode())
    assert load_settings(VaultSettings).token.get_secret_value() == " sesame 1"
    assert capsys.readouterr().err == ""


def test_optional_secrets_and_settings_with_a_profile_have_files_too(
    named: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named.write_text("sesame\n")
    other = tmp_path / "other"
    other.write_text("poppy")
    monkeypatch.setenv("copydesk_vault_other_file", str(other))
    found = load_settings(VaultSettings)
    assert found.other is not None
    assert found.other.get_secret_value() == "poppy"
    assert load_settings(ProfiledVaultSettings).token.get_secret_value() == "sesame"


def test_variable_and_file_together_are_refused_by_name(
    named: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    named.write_text("sesame")
    monkeypatch.setenv("COPYDESK_VAULT_TOKEN", "poppy")
    said = refused(capsys)
    assert said.startswith("COPYDESK_VAULT_TOKEN: is set, and so is COPYDESK_VAULT_TOKEN_FILE")
    assert "sesame" not in said
    assert "poppy" not in said


def test_an_argument_wins_over_a_file_that_is_not_even_there(named: Path) -> None:
    assert load_settings(VaultSettings, token="sesame").token.get_secret_value() == "sesame"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "No such file or directory"),
        (b"", "the file is empty"),
        (b"\n", "the file is empty"),
        (b"\xff\xfe", "expected text in UTF-8"),
        (b"x" * (LARGEST_SECRET + 1), "larger than"),
    ],
)
def test_a_file_that_holds_no_secret_is_told_with_its_variable(
    named: Path, content: bytes | None, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        named.write_bytes(content)
    said = refused(capsys)
    assert said.startswith(f"COPYDESK_VAULT_TOKEN_FILE: {named}: ")
    assert problem in said


def test_a_secret_that_is_refused_is_not_shown(named: Path, capsys: pytest.CaptureFixture[str]) -> None:
    named.write_text("abc")
    said = refused(capsys)
    assert "COPYDESK_VAULT_TOKEN=(hidden): expected 4 characters or more" in said
    assert "abc" not in said


def test_a_file_is_no_stranger_but_one_for_what_is_no_secret_is() -> None:
    environ = {"COPYDESK_VAULT_OTHER_FILE": "/run/secrets/other", "COPYDESK_VAULT_PORT_FILE": "/run/port"}
    (line,) = unknown_settings(VaultSettings, environ)
    assert line.startswith("COPYDESK_VAULT_PORT_FILE is ignored")


def test_the_help_tells_which_settings_have_files() -> None:
    said = " ".join(settings_in_words(VaultSettings).split())
    assert said.count("_FILE may name a file with it") == 2
    assert "what clients show (COPYDESK_VAULT_TOKEN_FILE may name a file with it.)" in said
