"""A fleet of one pod for a measurement: `copydesk up --profile`, started, waited for and ended."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from copydesk.cli.fleet.ports import free_port
from copydesk.cli.onboarding.tethered import PARENT_VARIABLE
from copydesk.common.errors import CopydeskError

HOST = "127.0.0.1"
READY_S = 900.0
"""How long a fleet may take until it serves: large checkpoints on a slow disk take minutes."""
END_S = 90.0
_PROFILED = {
    f"COPYDESK_INFERENCE_{key}" for key in ("DTYPE", "ENGINE", "SLOTS", "DRAFT", "DRAFT_TOKENS", "MODEL_DIGEST")
}


class TrialFleetError(CopydeskError):
    """A fleet that did not come up; `reason` is what it said."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"the fleet did not come up: {reason}")


@dataclass(frozen=True, slots=True)
class TrialFleet:
    """A fleet that serves at `url`; its pod was ready `pod_s` seconds after its start."""

    url: str
    pod_s: float


@contextlib.contextmanager
def trial_fleet(profile: Path, *, port: int | None = None) -> Iterator[TrialFleet]:
    """Run a fleet of one pod that a profile describes; its state is in a folder that goes with it.

    Raises:
        TrialFleetError: It does not come up.
    """
    port = port or free_port(HOST, random.Random())
    with tempfile.TemporaryDirectory(prefix="copydesk-", ignore_cleanup_errors=True) as folder:
        errors = Path(folder) / "stderr"
        command = ["up", "--json", "--no-show", "--pods", "1", "--port", str(port), "--profile", str(profile)]
        with errors.open("wb") as stderr:
            process = start_tethered(
                [*command, "--state-dir", f"{folder}/state"], stdout=subprocess.PIPE, stderr=stderr
            )
        try:
            pod_s = _wait(process, errors)
            yield TrialFleet(f"http://{HOST}:{port}", pod_s)
        finally:
            _end(process)


def start_tethered(arguments: list[str], *, stdout: Any, stderr: Any) -> subprocess.Popen[bytes]:
    """Start the copydesk command as a child that ends with this process."""
    return subprocess.Popen(
        [sys.executable, "-m", "copydesk.cli.onboarding.tethered", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        env={**environment(os.environ), PARENT_VARIABLE: str(os.getpid())},
    )


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables without those that would have a fleet be another than its profile says.

    A gateway's keys, limits and cache have no say in what a pod can do; a cache would hide it.
    """
    return {
        name: value
        for name, value in variables.items()
        if not name.startswith("COPYDESK_GATEWAY_") and name not in _PROFILED
    }


def _wait(process: subprocess.Popen[bytes], errors: Path) -> float:
    """Read events until the fleet is ready; the reader goes on after that, so that the pipe never fills up."""
    events: queue.Queue[dict[str, Any] | None] = queue.Queue()
    threading.Thread(target=_read, args=(process, events), daemon=True, name="fleet events").start()
    pod_s, end = 0.0, time.monotonic() + READY_S
    while True:
        try:
            event = events.get(timeout=max(0.0, end - time.monotonic()))
        except queue.Empty:
            raise TrialFleetError(f"it was not ready after {READY_S:.0f} s") from None
        if event is None:
            process.wait()
            raise TrialFleetError(_last_line(errors) or f"it ended with code {process.returncode}")
        match event["event"]:
            case "child_up" if event["name"].startswith("pod"):
                pod_s = float(event["after_s"])
            case "failed":
                tail = [line for line in event["log_tail"] if line.strip()]
                raise TrialFleetError(f"{event['name']}: {event['reason']}{': ' + tail[-1] if tail else ''}"[:500])
            case "ready":
                return pod_s


def _read(process: subprocess.Popen[bytes], events: queue.Queue[dict[str, Any] | None]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        with contextlib.suppress(ValueError):
            events.put(json.loads(line))
    events.put(None)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        with contextlib.suppress(OSError, ValueError):
            process.stdout.close()


def _last_line(path: Path) -> str:
    lines = [line.strip() for line in path.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1].removeprefix("error: ") if lines else ""
