"""`copydesk chaos` as it is called: on a fleet of its own, on one that runs, interrupted, and on none."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.fixtures.fleet import Fleet

pytestmark = pytest.mark.faults

COMMAND = (sys.executable, "-m", "copydesk.cli", "chaos")
LIMIT_S = 200.0


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=LIMIT_S, check=False)


def state_of(fleet: Fleet) -> str:
    return str(fleet.directory / "state")


def held(report: dict[str, Any]) -> dict[str, bool]:
    return {check["name"]: check["holds"] for check in report["checks"]}


def test_a_fleet_of_its_own_is_struck_judged_and_gone_afterwards(quick_model: Path, tmp_path: Path) -> None:
    page = tmp_path / "chaos.html"
    wanted = ("--minutes", "0.9", "--seed", "3", "--rate", "5", "--faults", "worker-kill,link-reset,nats-kill")
    done = run(*wanted, "--model", str(quick_model), "--json", "--html", str(page))
    assert done.returncode == 0, done.stderr[-4000:] + done.stdout[-2000:]
    report = json.loads(done.stdout)
    outcome = report["outcome"]
    assert outcome["good"] == outcome["offered"] > 150
    assert all(held(report).values()), report["checks"]
    struck = [one for one in report["struck"] if not one["left_out"]]
    assert {one["planned"]["kind"] for one in struck} & {"worker-kill", "link-reset"}
    names = {course["name"] for course in report["courses"]}
    assert {"gateway", "nats", "eds", "autoscaler", "pod-1", "pod-1/engine-0", "pod-2/worker-0"} <= names
    told = {course["name"] for course in report["courses"] if any(one["tasks"] for one in course["readings"])}
    assert {"gateway", "eds", "autoscaler", "pod-1", "pod-1/engine-0", "pod-2/worker-0"} <= told
    assert "nats-kill" in page.read_text() or "nats-kill" not in {one["planned"]["kind"] for one in struck}
    assert not [
        child for child in psutil.process_iter(["cmdline"]) if "copydesk-chaos-" in str(child.info["cmdline"])
    ]


def test_a_fleet_that_runs_is_loaded_and_looked_at_and_nothing_in_it_is_broken(fleet: Fleet) -> None:
    before = len(fleet.events)
    done = run("--state-dir", state_of(fleet), "--minutes", "0.2", "--rate", "5", "--json")
    assert done.returncode == 0, done.stderr[-4000:]
    report = json.loads(done.stdout)
    assert report["struck"] == []
    assert report["outcome"]["good"] == report["outcome"]["offered"] > 20
    assert {"up", "gateway", "pod-1"} <= {course["name"] for course in report["courses"]}
    assert fleet.events[before:] == []


def test_the_page_is_not_lost_with_what_cannot_be_printed(fleet: Fleet, tmp_path: Path) -> None:
    page = tmp_path / "chaos.html"
    wanted = ("--state-dir", state_of(fleet), "--minutes", "0.1", "--html", str(page))
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*COMMAND, *wanted], stdout=full, stderr=subprocess.PIPE, text=True, timeout=LIMIT_S, check=False
        )
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert "Copydesk under faults" in page.read_text()


def test_ctrl_c_ends_it_with_a_report_of_what_was_and_undoes_what_is_broken(fleet: Fleet) -> None:
    nats = psutil.Process(fleet.pid("nats"))
    wanted = ("--state-dir", state_of(fleet), "--minutes", "10", "--rate", "5", "--faults", "nats-away", "--json")
    with subprocess.Popen(
        [*COMMAND, *wanted], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=listening
    ) as chaos:
        deadline = time.monotonic() + LIMIT_S
        while nats.status() != psutil.STATUS_STOPPED:
            assert time.monotonic() < deadline
            assert chaos.poll() is None, chaos.communicate()
            time.sleep(0.05)
        chaos.send_signal(signal.SIGINT)
        said, told = chaos.communicate(timeout=LIMIT_S)
    assert chaos.returncode == 130, told
    assert nats.status() != psutil.STATUS_STOPPED
    report = json.loads(said)
    assert report["interrupted"]
    assert report["seconds"] < 60.0
    assert report["outcome"]["good"] == report["outcome"]["offered"] > 0
    assert [one["planned"]["kind"] for one in report["struck"]] == ["nats-away"]
    assert "interrupted; the report is of the first" in told


def listening() -> None:
    """Take SIGINT, which a shell in the background has its children ignore."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.setsid()


def test_where_nobody_is_the_exit_code_is_2_and_one_line_says_so() -> None:
    done = run("--url", "http://127.0.0.1:9", "--minutes", "0.2")
    assert done.returncode == 2
    assert "no fleet answers at http://127.0.0.1:9" in done.stderr
    assert "Traceback" not in done.stderr
