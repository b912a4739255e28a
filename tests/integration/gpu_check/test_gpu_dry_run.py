"""The script for machines with a GPU, run without one: every part of it, with tiny models."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from copydesk.inference.gpu_check.pods import QUICK
from copydesk.inference.gpu_check.rates import SETTINGS
from copydesk.inference.gpu_check.rows import Row, read_row

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_the_check_runs_dry_and_finds_all_answers_right(tmp_path: Path) -> None:
    done = subprocess.run(
        [ROOT / "scripts" / "gpu_check.sh", "--device", "cpu", "--quick", "--json", "--work", tmp_path],
        env=os.environ | {"PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    rows = [row for line in done.stdout.splitlines() if (row := read_row(line)) is not None]
    assert done.returncode == 0, (done.stderr, [row for row in rows if row.ok is False])
    assert {row.part for row in rows} == {"machine", "kernels", "parity", "engine", "pod"}
    assert settings(rows, "engine") == [setting.name for setting in SETTINGS]
    assert settings(rows, "pod") == [setting.name for setting in QUICK.settings]
    assert all(row.ok for row in rows if row.part != "machine")
    assert all(row.ratio for row in rows if row.unit == "requests/s")
    assert "dry run" in next(row.note for row in rows if row.setting == "device")


def settings(rows: list[Row], part: str) -> list[str]:
    return [row.setting for row in rows if row.part == part]
