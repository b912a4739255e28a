"""The command line as a person meets it: help, versions, mistakes, refusals before anything is started."""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from copydesk.cli.fleet.ports import free_port
from copydesk.cli.fleet.state import StateLock
from copydesk.inference.checkpoint import read_digest
from tests.fixtures.default_model import default_model_or_skip

COMMANDS = ["up", "status", "correct", "demo", "model", "model prepare", "bench engine", "eds inspect"]


def copydesk(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "copydesk.cli", *arguments]
    env = {**os.environ, "COLUMNS": "200", **environ}
    return subprocess.run(argv, capture_output=True, text=True, env=env, timeout=60, check=False)


def a_port() -> str:
    return str(free_port("127.0.0.1", random.Random()))


@pytest.fixture
def a_model(tmp_path: Path) -> Path:
    directory = tmp_path / "tiny"
    directory.mkdir()
    (directory / "config.json").write_text("{}")
    return directory


@pytest.mark.parametrize("command", COMMANDS)
def test_help_explains_every_command(command: str) -> None:
    done = copydesk(*command.split(), "--help")
    assert done.returncode == 0
    assert "Usage:" in done.stdout
    if command != "model":
        assert "Examples" in done.stdout
        assert f"copydesk {command}" in done.stdout


@pytest.mark.parametrize(
    "line",
    [
        "fly",
        "model fly",
        "up --wings",
        "up --pods 0",
        "up --pods two",
        "up --dtype int4",
        "status --url 127.0.0.1:8080",
    ],
)
def test_what_cannot_be_understood_exits_with_2(line: str) -> None:
    done = copydesk(*line.split())
    assert done.returncode == 2
    assert "Error" in done.stderr


def test_version_names_the_release() -> None:
    assert copydesk("--version").stdout.startswith("copydesk 0.")


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from copydesk.cli.main import app; app(['--help'], standalone_mode=False); "
        "heavy = {'httpx', 'torch', 'numpy', 'psutil', 'asyncio', 'msgspec'}; "
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr.strip() == "[]"


def test_up_on_a_port_in_use_names_the_process_and_another_port(tmp_path: Path, a_model: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        options = ("--port", str(port), "--model", str(a_model), "--state-dir", str(tmp_path / "state"))
        done = copydesk("up", *options)
    assert done.returncode == 2
    assert f"port {port} is in use by process {os.getpid()}" in done.stderr
    assert "--port" in done.stderr


def test_up_with_a_directory_that_is_no_model_says_what_is_missing(tmp_path: Path) -> None:
    done = copydesk("up", "--model", str(tmp_path), "--state-dir", str(tmp_path / "state"), "--port", a_port())
    assert done.returncode == 2
    assert "has no config.json" in done.stderr


def test_up_with_a_state_directory_that_cannot_be_says_so_in_one_line(tmp_path: Path, a_model: Path) -> None:
    (tmp_path / "file").touch()
    done = copydesk("up", "--model", str(a_model), "--port", a_port(), "--state-dir", str(tmp_path / "file"))
    assert done.returncode == 2
    assert "file cannot hold the state of a fleet: File exists" in done.stderr
    assert "--state-dir" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_second_up_says_that_one_is_running(tmp_path: Path, a_model: Path) -> None:
    with StateLock(tmp_path / "state"):
        done = copydesk("up", "--model", str(a_model), "--port", a_port(), "--state-dir", str(tmp_path / "state"))
    assert done.returncode == 2
    assert "a fleet is running" in done.stderr


def test_up_with_a_model_that_cannot_be_loaded_shows_the_log_and_exits_with_2(
    tmp_path: Path, a_model: Path
) -> None:
    state = tmp_path / "state"
    done = copydesk(
        "up", "--pods", "1", "--port", "29871", "--model", str(a_model), "--state-dir", str(state), "--json"
    )
    events = [json.loads(line) for line in done.stdout.splitlines()]
    failed = next(event for event in events if event["event"] == "failed")
    assert done.returncode == 2
    assert (failed["name"], failed["exit_code"]) == ("pod-1", 2)
    assert failed["log_tail"]
    assert events[-1]["event"] == "stopped"
    assert not (state / "fleet.json").exists()


def test_a_shell_can_take_the_directory_of_the_prepared_model() -> None:
    model = default_model_or_skip()
    done = copydesk("model", "prepare")
    assert done.returncode == 0
    assert done.stdout == f"{model}\n"
    assert f"digest {read_digest(model)}" in done.stderr.splitlines()
