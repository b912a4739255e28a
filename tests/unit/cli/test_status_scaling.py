"""What `copydesk status` says of a fleet that grows and shrinks."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from copydesk.cli.api import PodView
from copydesk.cli.commands.status import StatusView, look, status
from copydesk.cli.fleet.state import FleetState, ProcessState, ScalingState, write_state

NOBODY = "http://127.0.0.1:1"


@pytest.fixture
def fleet(tmp_path: Path) -> FleetState:
    now = time.time()
    pods = tuple(
        ProcessState(name=name, role="pod", pid=os.getpid(), started=now, restarts=0, draining=name == "pod-2")
        for name in ("pod-1", "pod-2")
    )
    state = FleetState(
        pid=os.getpid(),
        started=now,
        url=NOBODY,
        nats_url="nats://127.0.0.1:1",
        model="tiny",
        model_dir="m",
        state_dir=str(tmp_path),
        logs="l",
        pods=("pod-1", "pod-2"),
        processes=pods,
        scaling=ScalingState(least=1, most=3, pods=1, reason="demand [fell]"),
    )
    write_state(state)
    return state


def test_a_person_sees_the_limits_the_size_its_reason_and_who_drains(
    fleet: FleetState, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert status(None, tmp_path, as_json=False, watch=False) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "autoscaled between 1 and 3 pods, now 1: demand [fell]" in lines
    assert [line.split()[2] for line in lines if line.startswith("pod-")] == ["running", "draining"]


def test_a_program_gets_the_same(
    fleet: FleetState, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert status(None, tmp_path, as_json=True, watch=False) == 1
    told = json.loads(capfdbinary.readouterr().out)
    assert told["nats_url"] == fleet.nats_url
    assert told["scaling"] == {"least": 1, "most": 3, "pods": 1, "reason": "demand [fell]"}
    assert {row["name"]: row["draining"] for row in told["processes"] if row["role"] == "pod"} == {
        "pod-1": False,
        "pod-2": True,
    }


def test_watching_without_a_terminal_writes_each_look_at_once_and_ends_with_its_reader(
    fleet: FleetState, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "copydesk.cli", "status", "--watch", "--state-dir", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        looks = itertools.islice((line for line in lines if line.startswith("fleet ")), 2)
        assert [line.split()[1] for line in looks] == [NOBODY, NOBODY]
        process.stdout.close()
        assert process.wait(timeout=30) != 0


@pytest.mark.parametrize("width", [60, 80])
def test_pods_are_told_in_whole_words_in_a_narrow_terminal_too(
    width: int,
    fleet: FleetState,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pod = PodView("pod-1", "ready", True, "127.0.0.1:42335", running=1, queued=0, capacity=32, requests=1507)

    def looked(url: str | None, state_dir: Path | None) -> StatusView:
        return msgspec.structs.replace(look(url, state_dir), pods=(pod,), problem=None)

    monkeypatch.setattr("copydesk.cli.commands.status.look", looked)
    monkeypatch.setenv("COLUMNS", str(width))
    assert status(None, tmp_path, as_json=False, watch=False) == 0
    told = capsys.readouterr().out
    assert "…" not in told
    assert told.splitlines()[-1].split()[0] == "pod-1"
    assert "1507" in told
    assert ("127.0.0.1:42335" in told) == (width == 80)
