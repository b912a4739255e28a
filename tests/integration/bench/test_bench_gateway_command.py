"""`python -m bench.gateway`, from the C programs to the figures, in a few seconds and without peers."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.gateway.__main__ import main
from bench.gateway.peers import PEERS, SetUpError


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
    ours = {"copydesk", "copydesk /v1/correct", "copydesk, not compiled"}
    assert set(found["requests_per_cpu_second"]) == ours
    assert all(rate > 0 for rate in found["requests_per_cpu_second"].values())
    assert set(found["added_latency_ms"]) == set(found["requests_per_cpu_second"])
    assert found["errors"] == dict.fromkeys(ours, 0)
    assert ElementTree.parse(plot).getroot().tag.endswith("svg")


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--pods", "four", "a number from 1 to 1000 is wanted, not 'four'"),
        ("--pods", "4,0", "a number from 1 to 1000 is wanted, not '0'"),
        ("--rounds", "0", "a number from 1 to 1000 is wanted"),
        ("--seconds", "-1", "a number from 0.1 to 600 is wanted"),
        ("--plot", "nowhere/plot.svg", "there is no folder nowhere"),
        ("--peers", "ngnix", "no peer is called ngnix; there are nginx, haproxy, envoy"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_a_line(
    option: str, value: str, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench.gateway", option, value])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    assert said in capsys.readouterr().err


def test_a_peer_that_cannot_be_installed_is_named_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    nginx = next(peer for peer in PEERS if peer.name == "nginx")
    with pytest.raises(SetUpError, match=r"nginx could not be installed by `apt-get .*there is no apt-get"):
        nginx.set_up()
