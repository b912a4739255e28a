"""`copydesk model quantize` as a person meets it: a table or one JSON object, exit codes, nothing half written."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from copydesk.inference.checkpoint import read_digest
from tests.fixtures.tiny_model import write_tiny_model
from tests.fixtures.until import until

COMMAND = [sys.executable, "-m", "copydesk.cli", "model", "quantize"]
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "120"}


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "original"
    return write_tiny_model(folder, dtype="bfloat16", always_stops=True)


def quantize(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    argv = [*COMMAND, *map(str, arguments)]
    return subprocess.run(argv, capture_output=True, text=True, env=ENVIRONMENT, check=False)


def test_it_shows_sizes_errors_and_agreement(original: Path, tmp_path: Path) -> None:
    run = quantize(original, "--out", tmp_path / "out", "--keep", "attention")
    assert (run.returncode, run.stderr) == (0, "")
    assert f"{tmp_path / 'out'}: fp8, one scale an output channel" in run.stdout
    assert "modules    6 quantised, 8 kept" in run.stdout
    assert "8 kept: --keep attention" in run.stdout
    assert f"digest     {read_digest(tmp_path / 'out')}" in run.stdout
    for row in ("| mlp.down_proj ", "| 1     | kept | kept | kept | kept |", "| attention kept |"):
        assert row in run.stdout
    assert run.stdout.count("this model") == 1
    assert run.stdout.rstrip().endswith(f"copydesk model evaluate {tmp_path / 'out'} --against {original}")


def test_json_is_one_object_on_standard_output(original: Path, tmp_path: Path) -> None:
    run = quantize(
        original, "--out", tmp_path / "out", "--scheme", "int8", "--per-tensor", "--no-report", "--json"
    )
    assert (run.returncode, run.stderr) == (0, "")
    told = json.loads(run.stdout)
    assert told["directory"] == str(tmp_path / "out")
    report = told["report"]
    assert (report["scheme"], report["weight_scale"], report["evaluation"]) == ("int8", "tensor", None)
    assert report["digest"] == read_digest(tmp_path / "out")
    assert not (tmp_path / "out" / "quantisation-report.json").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--keep", "atention"], "error: --keep atention: no module has such a name; near it: attention\n"),
        (["--scheme", "fp4"], "'fp4' is not one of 'fp8', 'int8'"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line_with_code_2(
    original: Path, tmp_path: Path, options: list[str], message: str
) -> None:
    run = quantize(original, "--out", tmp_path / "out", *options)
    assert (run.returncode, run.stdout) == (2, "")
    assert message in run.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_cannot_be_asked_is_offered_to_go_without_a_report(tmp_path: Path) -> None:
    source = write_tiny_model(tmp_path / "original", chat_template=None)
    run = quantize(source, "--out", tmp_path / "out")
    assert run.returncode == 2
    assert "has no chat template" in run.stderr
    assert "--no-report" in run.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["original"]


async def ended(out: Path, source: Path, number: signal.Signals) -> int:
    """Start it, send it a signal once it measures, and return its exit code."""
    process = await asyncio.create_subprocess_exec(*COMMAND, str(source), "--out", str(out), env=ENVIRONMENT)
    manifest = out.with_name(f".{out.name}.partial") / "copydesk-manifest.json"
    await until(lambda: manifest.exists() or process.returncode is not None, timeout=120)
    process.send_signal(number)
    return await process.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_ended_in_the_middle_it_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    source = write_tiny_model(tmp_path / "original")  # which writes long answers, and takes its time
    assert asyncio.run(ended(tmp_path / "out", source, number)) == 128 + number
    assert [path.name for path in tmp_path.iterdir()] == ["original"]
