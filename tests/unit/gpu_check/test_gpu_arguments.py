"""What makes a check of a GPU useless is said at once, and not after minutes."""

from __future__ import annotations

from pathlib import Path

import pytest

from copydesk.inference.gpu_check import __main__ as gpu_check


@pytest.mark.parametrize(
    ("arguments", "gpus", "reason"),
    [
        (["--device", "bogus"], 1, "--device bogus: expected cuda, cuda:N or cpu"),
        (["--device", "cuda:x"], 1, "--device cuda:x: expected cuda, cuda:N or cpu"),
        (["--device", "cuda:1"], 1, "--device cuda:1: torch finds 1 GPUs"),
        ([], 0, "torch finds no GPU here"),
        (["--device", "cpu", "--model", "/nowhere"], 0, "--model /nowhere: there is no config.json"),
        (["--device", "cpu", "--sentences", "/nowhere"], 0, "--sentences /nowhere: there is no such file"),
    ],
)
def test_arguments_that_cannot_work_end_it_at_once(
    arguments: list[str],
    gpus: int,
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(gpu_check, "_gpus", lambda: gpus)
    assert gpu_check.main([*arguments, "--work", str(tmp_path / "work")]) == 2
    assert capsys.readouterr().err.startswith(reason)
    assert not (tmp_path / "work").exists()
