"""What is said to be done next can be pasted, and is left out where it could not work."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from copydesk.cli.commands.model_onboard import _is_default
from copydesk.cli.main import app
from copydesk.cli.onboarding.next_steps import NextSteps
from copydesk.cli.onboarding.search import Made
from copydesk.inference.checkpoint import read_digest
from tests.fixtures.tiny_model import write_tiny_model
from tests.unit.onboarding.test_onboarding_report import onboarded


def test_commands_are_quoted_for_a_shell() -> None:
    steps = NextSteps(".venv/bin/copydesk", "/my out/profile.yaml")
    assert steps.run == ".venv/bin/copydesk up --profile '/my out/profile.yaml'"
    assert steps.roll_out == (
        ".venv/bin/copydesk up --candidate '/my out/profile.yaml'",
        ".venv/bin/copydesk model rollout --candidate '/my out/profile.yaml'",
    )


def test_the_default_model_is_known_by_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    default = write_tiny_model(tmp_path / "default")
    monkeypatch.setattr("copydesk.inference.checkpoint.prepare.default_model_directory", lambda: default)
    found = onboarded(tmp_path, capacity=False)
    assert not _is_default(found)
    made = Made(directory=str(default), digest=read_digest(default), bytes=1)
    same = msgspec.structs.replace(found, serving=msgspec.structs.replace(found.serving, made=made))
    assert _is_default(same)
    assert NextSteps("copydesk", "/p.yaml", _is_default(same)).roll_out is None
    monkeypatch.setattr("copydesk.inference.checkpoint.prepare.default_model_directory", lambda: tmp_path / "no")
    assert not _is_default(same)


@pytest.mark.parametrize("name", ["onboard", "search"])
def test_it_speaks_before_it_looks_at_anything(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"copydesk.cli.commands.model_{name}.configure_logging", lambda *_, **__: None)
    result = CliRunner().invoke(app, ["model", name, "/nowhere/at/all"])
    first, second = result.stderr.splitlines()
    assert first == "looking at the model, the data and this machine"
    assert second.startswith("error: /nowhere/at/all: there is no such directory")
    assert result.exit_code == 2
