import os
import stat
import time
from pathlib import Path

import pytest
from pydantic import SecretStr

from copydesk.common.settings import ServiceSettings
from copydesk.inference.pod.failure import CannotStartError, FailureNote
from copydesk.inference.pod.runtime import RuntimeDirectory, remove_abandoned


def test_the_directory_is_private_and_goes_with_its_owner(tmp_path: Path) -> None:
    with RuntimeDirectory(tmp_path) as runtime:
        assert stat.S_IMODE(runtime.path.stat().st_mode) == 0o700
        assert runtime.metrics.is_dir()
        assert Path(runtime.socket("engine")).parent == runtime.path
    assert not runtime.path.exists()


def test_a_directory_without_owner_is_removed_and_one_in_use_is_not(tmp_path: Path) -> None:
    abandoned = tmp_path / "copydesk-pod-dead"
    abandoned.mkdir()
    (abandoned / "lock").touch()
    later = time.time() + 3600
    with RuntimeDirectory(tmp_path) as runtime:
        assert remove_abandoned(tmp_path, now=later) == [abandoned]
        assert runtime.path.exists()
    assert not abandoned.exists()


def test_a_young_directory_is_left_alone_since_its_owner_may_be_about_to_lock_it(tmp_path: Path) -> None:
    young = tmp_path / "copydesk-pod-young"
    young.mkdir()
    (young / "lock").touch()
    assert remove_abandoned(tmp_path, now=time.time()) == []


class VaultSettings(ServiceSettings, env_prefix="COPYDESK_VAULT_"):
    token: SecretStr = SecretStr("")
    other: SecretStr = SecretStr("")


def test_children_find_the_secrets_of_the_start_whatever_their_files_hold_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounted = tmp_path / "token"
    mounted.write_text("sesame\n\n")
    monkeypatch.setenv("COPYDESK_VAULT_TOKEN_FILE", str(mounted))
    settings = VaultSettings()
    with RuntimeDirectory(tmp_path) as runtime:
        runtime.keep_secrets(settings, os.environ)
        mounted.write_text("poppy")
        assert list(runtime.variables) == ["COPYDESK_VAULT_TOKEN_FILE"]
        kept = Path(runtime.variables["COPYDESK_VAULT_TOKEN_FILE"])
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        monkeypatch.setenv("COPYDESK_VAULT_TOKEN_FILE", str(kept))
        assert VaultSettings().token == settings.token


def test_a_link_is_never_followed(tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    target.mkdir()
    (target / "lock").touch()
    (tmp_path / "copydesk-pod-link").symlink_to(target)
    os.utime(target, (0, 0))
    assert remove_abandoned(tmp_path, now=time.time()) == []
    assert target.exists()


def test_a_note_of_failure_is_one_line_that_names_the_setting(tmp_path: Path) -> None:
    note = FailureNote(tmp_path, "engine")
    assert note.read() is None
    note.write(CannotStartError("MODEL_DIR", "/x has no\nconfig.json"))
    assert note.read() == "COPYDESK_INFERENCE_MODEL_DIR: /x has no config.json"
