"""Two versions of a model in one local fleet, by `copydesk up --candidate`, and `copydesk model rollout`."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from copydesk.cli.fleet.plan import NATS_VARIABLE
from copydesk.inference.checkpoint import read_digest
from tests.fixtures.fleet import Fleet, running_fleet
from tests.fixtures.tiny_model import write_tiny_model

TOKEN = {NATS_VARIABLE: "e2e"}
QUICK = (
    *("--sentences", "30", "--shadow", "100", "--stages", "30,100", "--agreement", "0.8"),
    *("--stage-seconds", "1", "--stage-requests", "10", "--slo-ms", "5000", "--slow-margin", "100"),
)


class Writers:
    """People who ask for short texts all the time, at temperature 0; what they got is kept."""

    def __init__(self, url: str, number: int = 3) -> None:
        self.codes: Counter[int] = Counter()
        self.by: list[str] = []
        self._url = url
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._write, args=(i,)) for i in range(number)]
        for thread in self._threads:
            thread.start()

    def _write(self, offset: int) -> None:
        with httpx.Client(base_url=self._url, timeout=60) as client:
            number = offset
            while not self._over.is_set():
                number += 10
                body = {"model": "tiny", "prompt": f"Text {number}", "max_tokens": 4, "temperature": 0}
                answer = client.post("/v1/completions", json=body)
                self.codes[answer.status_code] += 1
                self.by.append(answer.json().get("system_fingerprint", ""))

    def end(self) -> None:
        """Have them stop."""
        self._over.set()
        for thread in self._threads:
            thread.join()


class Rollout:
    """`copydesk model rollout --json` as a process; `lines` is what it has said."""

    def __init__(self, fleet: Fleet, candidate: Path, *arguments: str) -> None:
        state = json.loads((fleet.directory / "state" / "fleet.json").read_bytes())
        command = [sys.executable, "-m", "copydesk.cli", "model", "rollout", "--json"]
        self.lines: list[dict[str, Any]] = []
        self.process = subprocess.Popen(
            [*command, "--candidate", str(candidate), "--nats-url", state["nats_url"], *arguments],
            stdout=subprocess.PIPE,
            env={**os.environ, **TOKEN},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(json.loads(line))

    def ended(self, within: float = 120.0) -> int:
        code = self.process.wait(within)
        self._reader.join(5)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code

    @property
    def stage(self) -> str:
        return self.lines[-1]["stage"] if self.lines else ""


@contextmanager
def two_versions(directory: Path, baseline: Path, candidate: Path) -> Iterator[tuple[Fleet, Writers]]:
    arguments = ("--model", str(baseline), "--pods", "1", "--candidate", str(candidate))
    with running_fleet(directory / "fleet", *arguments, environ=TOKEN) as fleet:
        writers = Writers(fleet.url)
        try:
            yield fleet, writers
        finally:
            writers.end()


def until(condition: Callable[[], object], within: float = 90.0) -> None:
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def metrics(fleet: Fleet) -> str:
    return httpx.get(f"{fleet.url}/metrics").text


@pytest.fixture
def twin(tmp_path: Path, tiny_model: Path) -> Path:
    """The same weights as the tiny model's in another version: a file differs that nobody reads."""
    directory = tmp_path / "twin"
    shutil.copytree(tiny_model, directory)
    (directory / "notes.json").write_text('{"version": 2}')
    return directory


def test_a_version_that_answers_otherwise_is_rolled_back(tmp_path: Path, tiny_model: Path) -> None:
    other = write_tiny_model(tmp_path / "other", seed=2)
    with two_versions(tmp_path, tiny_model, other) as (fleet, writers):
        until(lambda: len(writers.by) > 5)
        rollout = Rollout(fleet, other, *QUICK)
        assert rollout.ended() == 1, rollout.lines
        assert rollout.stage == "rolled_back"
        assert "came back the same" in rollout.lines[-1]["why"]
        pods = {pod["id"]: pod["digest"] for pod in httpx.get(f"{fleet.url}/v1/fleet").json()["pods"]}
        assert pods == {"pod-1": read_digest(tiny_model), "candidate-1": read_digest(other)}
    assert set(writers.codes) == {200}


def test_without_its_controller_the_old_version_answers_and_another_one_finishes(
    tmp_path: Path, tiny_model: Path, twin: Path
) -> None:
    with two_versions(tmp_path, tiny_model, twin) as (fleet, writers):
        first = Rollout(fleet, twin, *QUICK, "--stage-seconds", "600", "--expires", "3")
        until(lambda: first.stage == "share" and first.lines[-1]["candidate"]["requests"] > 5)
        first.process.send_signal(signal.SIGKILL)
        first.ended()
        until(lambda: "rollout_unattended_total 1" in metrics(fleet))
        assert "copydesk_gateway_rollout_share 0.0" in metrics(fleet) or "rollout_share 0\n" in metrics(fleet)
        second = Rollout(fleet, twin, *QUICK, "--resume")
        until(lambda: second.stage == "share")
        os.kill(fleet.pid("candidate-1"), signal.SIGKILL)
        assert second.ended() == 0, second.lines
        assert (second.lines[0]["stage"], second.lines[0]["share"]) == ("share", 0.3)
        assert second.lines[0]["rollout"] == first.lines[0]["rollout"]
        assert second.stage == "finished"
        health = httpx.get(f"{fleet.url}/v1/fleet").json()
        assert health["model_digest"] == read_digest(twin)
    assert set(writers.codes) == {200}
