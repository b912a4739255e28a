"""`python -m bench.eds`, from a small scripted cluster to the figures, in a few seconds."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.fixtures.nats import NatsServer


@pytest.mark.slow
def test_it_measures_discovery_with_nats_and_with_a_subscriber_to_xds(nats_server: NatsServer) -> None:
    del nats_server  # it brings its own; this one says whether there can be one
    options = [
        "--json",
        "--services",
        "3",
        "--endpoints",
        "30",
        "--rate",
        "40",
        "--seconds",
        "1",
        "--warm-up",
        "0.2",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "bench.eds", *options], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    without, with_xds = found["cases"]
    assert (without["changes"], without["xds_answers"]) == (40, 0)
    assert with_xds["xds_answers"] > 0
    for case in found["cases"]:
        assert case["cpu_cores"] > 0
        assert case["memory_mb"] > 10
        assert 0 < case["publish"]["p50"] <= case["publish"]["p99"] <= case["publish"]["most"]
        assert case["change"]["p50"] > case["publish"]["p50"]
