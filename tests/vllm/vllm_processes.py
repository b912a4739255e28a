"""What runs below a pod that serves with vLLM."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.integration.pod.running_pod import RunningPod

START_SECONDS = 900.0
"""A start takes a minute on two cores that are free, and many on ones that are not."""


def times_ready(pod: RunningPod) -> int:
    """Return how often the pod has become ready."""
    return len(pod.events("pod_state", state="ready"))


def wait_ready(pod: RunningPod, times: int = 1) -> None:
    """Wait until the pod has become ready that many times."""
    deadline = time.monotonic() + START_SECONDS
    while times_ready(pod) < times:
        if pod.process.poll() is not None or time.monotonic() > deadline:
            pytest.fail(f"the pod is not ready ({times}):\n{pod.output()[-10_000:]}")
        time.sleep(0.05)


def end(pod: RunningPod) -> int:
    """Tell the pod to end, and return its exit code."""
    pod.process.terminate()
    return pod.process.wait(START_SECONDS)


def group_of(leader: int) -> dict[int, str]:
    """Return the processes of a process group that run, by their ids, with what they are called."""
    found: dict[int, str] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            title = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[2]) == leader and fields[0] not in {"Z", "X"}:
            found[int(folder.name)] = title
    return found


def called(leader: int, word: str) -> int:
    """Return the process of a group that has the word in its title."""
    (pid,) = [pid for pid, title in group_of(leader).items() if word in title]
    return pid
