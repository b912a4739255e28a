"""`python -m bench.gateway`, from the C programs to the figures, in a few seconds and without peers."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest


@pytest.mark.skipif(shutil.which("cc") is None or shutil.which("taskset") is None, reason="needs cc and taskset")
def test_it_measures_our_gateway_over_mock_pods(tmp_path: Path) -> None:
    plot = tmp_path / "plot.svg"
    options = [
        "--json",
        "--pods",
        "2",
        "--rounds",
        "1",
        "--seconds",
        "0.3",
        "--peers",
        "none",
        "--plot",
        str(plot),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "bench.gateway", *options], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(found["requests_per_cpu_second"]) == {"copydesk", "copydesk /v1/correct"}
    assert all(rate > 0 for rate in found["requests_per_cpu_second"].values())
    assert set(found["added_latency_ms"]) == set(found["requests_per_cpu_second"])
    assert found["errors"] == {"copydesk": 0, "copydesk /v1/correct": 0}
    assert ElementTree.parse(plot).getroot().tag.endswith("svg")
