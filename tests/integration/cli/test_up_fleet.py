"""`copydesk up` with the real services and a tiny model: ready, a death, a second one, the end."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from copydesk.cli.fleet.ports import free_port
from copydesk.cli.fleet.state import FleetState, read_state
from tests.fixtures.tiny_model import write_tiny_model

TEXT = "She go to school every day.\n\nThe  weather is nice.\n"


class Up:
    """A running `copydesk up --json`."""

    def __init__(self, model: Path, state_dir: Path, *more: str) -> None:
        self.state_dir = state_dir
        self.port = free_port("127.0.0.1", random.Random())
        self.options = ["--port", str(self.port), "--model", str(model), "--state-dir", str(state_dir)]
        argv = [sys.executable, "-m", "copydesk.cli", "up", "--json", "--dtype", "float32", *self.options, *more]
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.events: list[dict[str, Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def until(self, name: str) -> dict[str, Any]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.events.append(json.loads(line))
            if self.events[-1]["event"] == name:
                return self.events[-1]
        raise AssertionError(f"no {name} among {self.events}: {self.process.communicate()[1]}")

    def state(self) -> FleetState:
        state = read_state(self.state_dir)
        assert state is not None
        return state

    def family(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Up]:
    model = write_tiny_model(tmp_path / "tiny", always_stops=True)
    up = Up(model, tmp_path / "state")
    yield up
    up.process.kill()
    up.process.communicate()


@pytest.fixture
def small_fleet(tmp_path: Path) -> Iterator[Up]:
    """With one pod, where nothing is asked of the pods."""
    model = write_tiny_model(tmp_path / "tiny", always_stops=True)
    up = Up(model, tmp_path / "state", "--pods", "1")
    yield up
    up.process.kill()
    up.process.communicate()


def copydesk(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "copydesk.cli", *arguments]
    return subprocess.run(argv, input=stdin, capture_output=True, text=True, timeout=120, check=False)


def gone(processes: list[psutil.Process]) -> bool:
    _, alive = psutil.wait_procs(processes, timeout=20)
    return all(process.status() == psutil.STATUS_ZOMBIE for process in alive if process.is_running())


def test_a_fleet_serves_heals_and_ends(fleet: Up) -> None:
    ready = fleet.until("ready")
    assert ready["url"] == fleet.url
    assert {event["name"] for event in fleet.events if event["event"] == "child_up"} == {
        "nats",
        "eds",
        "pod-1",
        "pod-2",
        "gateway",
    }

    corrected = copydesk("correct", "--url", fleet.url, stdin=TEXT)
    assert (corrected.returncode, corrected.stdout) == (0, TEXT)

    shown = json.loads(copydesk("status", "--json", "--state-dir", str(fleet.state_dir)).stdout)
    assert shown["url"] == fleet.url
    assert len(shown["digest"]) == 64
    assert sorted((pod["id"], pod["state"], pod["connected"]) for pod in shown["pods"]) == [
        ("pod-1", "ready", True),
        ("pod-2", "ready", True),
    ]
    assert all(process["alive"] for process in shown["processes"])

    second = copydesk("up", *fleet.options)
    assert second.returncode == 2
    assert f"pid {fleet.process.pid}, {fleet.url}" in second.stderr

    for name in ("pod-2", "gateway"):
        process = next(process for process in fleet.state().processes if process.name == name)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        exited = fleet.until("child_exited")
        back = fleet.until("restarted")
        assert (exited["name"], exited["how"], back["name"]) == (name, "was killed by SIGKILL", name)

    family = fleet.family()
    fleet.process.send_signal(signal.SIGINT)
    stopped = fleet.until("stopped")
    assert stopped["exit_code"] == 0
    assert fleet.process.wait(timeout=20) == 0
    assert gone(family)
    assert not [event for event in fleet.events if event["event"] == "child_killed"]
    assert not (fleet.state_dir / "fleet.json").exists()


def kill(fleet: Up, name: str) -> None:
    process = next(process for process in fleet.state().processes if process.name == name)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)


def test_a_state_file_that_cannot_be_written_does_not_end_a_fleet(fleet: Up) -> None:
    fleet.until("ready")
    (fleet.state_dir / "fleet.json.new").mkdir()
    kill(fleet, "pod-2")
    assert fleet.until("child_exited")["name"] == "pod-2"
    assert fleet.until("restarted")["name"] == "pod-2"


def test_a_state_directory_without_room_is_named_at_the_start(small_fleet: Up, tmp_path: Path) -> None:
    small_fleet.until("ready")
    (tmp_path / "full" / "fleet.json.new").mkdir(parents=True)
    port = str(free_port("127.0.0.1", random.Random()))
    refused = copydesk("up", *small_fleet.options[2:4], "--port", port, "--state-dir", str(tmp_path / "full"))
    assert refused.returncode == 2
    assert f"{tmp_path / 'full'} cannot hold the state of a fleet" in refused.stderr


def test_nobody_without_the_token_can_name_pods_to_the_gateway(small_fleet: Up) -> None:
    small_fleet.until("ready")

    address = ("127.0.0.1", int(small_fleet.state().nats_url.rpartition(":")[2]))
    with socket.create_connection(address, timeout=10) as stranger:
        stranger.sendall(b'CONNECT {"verbose":false}\r\nPUB copydesk.v1.endpoints.tiny 2\r\n{}\r\nPING\r\n')
        heard = b"".join(iter(lambda: stranger.recv(4096), b""))
    assert b"Authorization Violation" in heard
    assert b"PONG" not in heard


def test_kill_9_of_up_leaves_nothing_running(fleet: Up) -> None:
    fleet.until("ready")
    family = fleet.family()
    assert len(family) >= 9
    fleet.process.kill()
    assert gone(family)


def test_a_second_signal_ends_everything_at_once(small_fleet: Up) -> None:
    small_fleet.until("ready")
    family = small_fleet.family()
    gateway = next(process for process in small_fleet.state().processes if process.name == "gateway")
    assert gateway.pid is not None
    os.kill(gateway.pid, signal.SIGSTOP)
    small_fleet.process.send_signal(signal.SIGTERM)
    small_fleet.until("stopping")
    small_fleet.process.send_signal(signal.SIGTERM)
    assert small_fleet.until("stopped")["exit_code"] == 130
    assert small_fleet.process.wait(timeout=20) == 130
    assert gone(family)


def test_a_demo_that_is_interrupted_has_failed(tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "tiny", always_stops=True)
    argv = [sys.executable, "-m", "copydesk.cli", "demo", "--pods", "1", "--model", str(model)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as demo:
        assert demo.stderr is not None
        while "up" not in demo.stderr.readline():
            pass
        family = psutil.Process(demo.pid).children(recursive=True)
        demo.send_signal(signal.SIGINT)
        assert demo.wait(timeout=60) == 130
    assert gone(family)


def test_a_demo_corrects_every_sentence_as_a_json_line(tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "tiny", always_stops=True)
    done = copydesk("demo", "--pods", "1", "--dtype", "float32", "--model", str(model))
    assert done.returncode == 0
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert rows[0]["text"] == "She go to school every day."
    assert len(rows) >= 5
    assert all(set(row) == {"text", "corrected", "edits", "latency_ms"} for row in rows)
