"""`copydesk bench engine` against our own pods, which need no installation."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.fixtures.tiny_model import write_tiny_model

ENGINES = "copydesk bf16 draft,copydesk bf16"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model"), seed=3)


def bench(*arguments: str, **environ: str) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "copydesk.cli", "bench", "engine", *arguments]
    env = {**os.environ, "COLUMNS": "200", **environ}
    return subprocess.Popen(
        argv,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
        # A shell starts what it runs in the background with SIGINT ignored, and that is inherited.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


@pytest.mark.slow
def test_our_pods_are_measured_and_leave_nothing_behind(model: Path, tmp_path: Path) -> None:
    few = ["--count", "4", "--alone", "2", "--rounds", "1", "--concurrency", "2"]
    command = bench("--engines", ENGINES, "--model", str(model), *few, "--json")
    output, progress = command.communicate(timeout=240)
    assert command.returncode == 0, progress
    result = json.loads(output)
    assert set(result["engines"]) == set(ENGINES.split(","))
    for figures in result["engines"].values():
        assert figures["requests_per_second"] > 0
        assert figures["p50_ms"] <= figures["p99_ms"]
        assert figures["passes_per_request"] >= 1
    plain, drafted = result["engines"]["copydesk bf16"], result["engines"]["copydesk bf16 draft"]
    assert drafted["passes_per_request"] <= plain["passes_per_request"]
    assert result["random_50_50"]["engines"]["copydesk bf16"]["requests"] == 4
    assert not [child for child in psutil.Process().children(recursive=True) if "copydesk" in child.name()]
    saved = tmp_path / "run.json"
    saved.write_text(output)
    shown, _ = bench("--show", str(saved)).communicate(timeout=60)
    assert "| copydesk bf16 draft |" in shown


def test_an_engine_that_is_not_installed_is_named_with_the_command_that_installs_it(tmp_path: Path) -> None:
    command = bench("--engines", "vllm", "--rivals-dir", str(tmp_path))
    output, progress = command.communicate(timeout=60)
    assert (command.returncode, output) == (2, "")
    assert "vllm is skipped: it is not installed" in progress
    assert "copydesk bench engine --set-up --engines vllm" in progress


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--engines", "vlm"], "no engine is called 'vlm'"),
        (["--engines", "copydesk", "--texts", "/nowhere"], "/nowhere: No such file"),
        (["--concurrency", "many"], "--concurrency"),
        (["--vllm-ngram", "8"], "expected tokens:longest:shortest"),
        (["--show", "/nowhere"], "/nowhere: No such file"),
    ],
)
def test_a_mistake_is_answered_at_once_and_says_what_was_expected(
    arguments: list[str], said: str, model: Path
) -> None:
    command = bench("--model", str(model), *arguments)
    _, progress = command.communicate(timeout=60)
    assert command.returncode == 2
    assert said in progress


def test_ctrl_c_ends_the_command_and_its_engines(model: Path, tmp_path: Path) -> None:
    texts = tmp_path / "texts"
    texts.write_text("\n".join(f"Sentence number {number}." for number in range(20)))
    command = bench("--engines", ENGINES, "--model", str(model), "--texts", str(texts), "--count", "20")
    assert command.stderr is not None
    while not command.stderr.readline().startswith("["):
        assert command.poll() is None
    children = psutil.Process(command.pid).children(recursive=True)
    assert len(children) > 2
    command.send_signal(signal.SIGINT)
    command.communicate(timeout=30)
    assert command.returncode == 130
    deadline = time.monotonic() + 10
    while any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children):
        assert time.monotonic() < deadline
        time.sleep(0.05)
