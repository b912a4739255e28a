"""The model that pods find at one path: prepared behind a link, or put there by somebody."""

from __future__ import annotations

from pathlib import Path

import pytest

from copydesk.inference.checkpoint import __main__ as for_pods
from copydesk.inference.checkpoint.prepare import Progress


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the default model is after it has been prepared, in five steps."""
    directory = tmp_path / "models" / "gec-en-0123"

    def prepare(progress: Progress) -> Path:
        for share in (0.0, 0.04, 0.08, 0.2, 0.3):
            progress("merging the adapter", share)
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "config.json").write_text("{}")
        return directory

    monkeypatch.setattr(for_pods, "prepare_default_model", prepare)
    return directory


def test_the_default_model_is_prepared_and_linked_to(
    tmp_path: Path, prepared: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert for_pods.main([str(tmp_path / "gec-en")]) == 0
    link = tmp_path / "gec-en"
    assert link.is_symlink()
    assert link.resolve() == prepared.resolve()
    assert not link.readlink().is_absolute()
    said = capsys.readouterr()
    lines = (said.out + said.err).splitlines()
    assert [line.count("model_progress") for line in lines].count(1) == 3
    assert "model_ready" in lines[-1]


def test_a_link_to_an_older_version_is_changed(tmp_path: Path, prepared: Path) -> None:
    (tmp_path / "gec-en").symlink_to("models/gec-en-older")
    assert for_pods.main([str(tmp_path / "gec-en")]) == 0
    assert (tmp_path / "gec-en").resolve() == prepared.resolve()


def test_a_model_that_somebody_put_there_is_left_alone(tmp_path: Path, prepared: Path) -> None:
    for name in ("gec-en", "my-llama"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
        assert for_pods.main([str(tmp_path / name)]) == 0
        assert not (tmp_path / name).is_symlink()
    assert not prepared.exists()


def test_a_model_that_is_not_there_is_named(
    tmp_path: Path, prepared: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert for_pods.main([str(tmp_path / "my-llama")]) == 2
    assert str(tmp_path / "my-llama") in capsys.readouterr().err
    assert not prepared.exists()


def test_its_arguments_are_shown_to_who_gives_others(capsys: pytest.CaptureFixture[str]) -> None:
    assert for_pods.main([]) == 2
    assert "usage" in capsys.readouterr().err
