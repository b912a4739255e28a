"""`python -m bench.image`, from an image made on the spot to the figures, in its quick size."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.image.__main__ import PROGRAMS
from bench.image.figures import Case, Subject, document, table
from bench.image.running import Run
from copydesk.imagefetcher.device.mounts import mounted


@pytest.fixture
def laboratory() -> None:
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    reason = "needs root" if os.geteuid() != 0 else f"not installed: {', '.join(missing)}" if missing else ""
    if reason and os.environ.get("COPYDESK_REQUIRE_ALL") == "1":
        pytest.fail(reason)
    if reason:
        pytest.skip(reason)


@pytest.fixture
def folder(laboratory: None) -> Iterator[Path]:
    """A folder for everything, with a short name, as sockets are in it; it must be empty in the end."""
    with tempfile.TemporaryDirectory(prefix="cb-") as name:
        yield Path(name)


@contextmanager
def started(folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Run the benchmark in its quick size; nothing of it may be left."""
    command = [sys.executable, "-m", "bench.image", "--quick", "--json", *options]
    environment = {**os.environ, "TMPDIR": str(folder)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        yield process
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert f"cdbench{process.pid}" not in listed
    assert not [mount for mount in mounted() if mount.target.startswith(str(folder))]
    assert not list(folder.iterdir())


def run(way: str, first: float, fetched: int, end: float) -> Case:
    return Case(way, 1000.0, "numpy", Run(first / 2, first, fetched, end, fetched, 800_000_000, 8.0, 0.5))


def test_it_measures_a_normal_pull_and_both_lazy_ways_and_leaves_nothing_behind(folder: Path) -> None:
    with started(folder) as process:
        out, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    found = json.loads(out.splitlines()[-1])
    assert [case["way"] for case in found["cases"]] == ["normal", "lazy", "traced"]
    normal, lazy, traced = found["cases"]
    assert normal["read"] == lazy["read"] == traced["read"] > 50_000_000
    assert traced["first_output_bytes"] < lazy["first_output_bytes"] < normal["first_output_bytes"]
    assert normal["first_output_bytes"] >= found["image"]["layers_size"]
    assert found["read_amplification"] <= 1.5
    assert found["bytes_fetched_before_first_output"] == traced["first_output_bytes"]
    assert min(found[name] for name in ("speedup_first_output", "cold_mb_s", "warm_mb_s")) > 0


def test_it_cleans_up_when_it_is_interrupted(folder: Path) -> None:
    with started(folder) as process:
        assert process.stderr is not None
        while not process.stderr.readline().startswith("normal at"):
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 130


def test_without_root_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from bench.image.__main__ import main

    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(sys, "argv", ["bench.image"])
    monkeypatch.setattr(shutil, "which", lambda name: name)
    assert main() == 2
    assert "needs root" in capsys.readouterr().err


def test_the_figures_compare_a_traced_start_with_a_normal_one() -> None:
    subject = Subject(800_000_000, 400_000_000, 350_000_000, 20_000_000, 10_000_000, 9_000)
    cases = [
        run("normal", 30.0, 400_000_000, 40.0),
        run("lazy", 4.0, 60_000_000, 41.0),
        run("traced", 2.0, 12_000_000, 20.0),
    ]
    found = document(subject, cases, {"cores": 2})
    assert found["speedup_first_output"] == 15.0
    assert found["read_amplification"] == 1.2
    assert found["total_over_normal"] == 0.5
    assert (found["cold_mb_s"], found["warm_mb_s"]) == (100.0, 1600.0)
    assert found["bars"] == {
        "speedup_first_output": [10.0, True],
        "read_amplification": [1.5, True],
        "total_over_normal": [1.3, True],
        "warm_share_of_overlayfs": [0.8, True],
    }
    assert "| 1,000 | traced | 2.00 | 15.0x | 12.0 | 100 | 1,600 | 20.0 |" in table(subject, cases)
