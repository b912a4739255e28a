"""One container, from a pull or a mount to its end, with the clock and the link watched."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from bench.image.content import PROGRAM_PATH, PYTHON, Start
from bench.image.errors import BenchError
from bench.image.network import Link
from bench.image.processes import Containerd


@dataclass(frozen=True)
class Run:
    """Seconds and bytes since the pull began: when the container could be started, its first output, its end.

    `read` is how much it read of the image from its first output on, in `cold_s` all told; when it read everything
    again, reading took `warm_s`, without the opening of files.
    """

    ready_s: float
    first_output_s: float
    first_output_bytes: int
    end_s: float
    end_bytes: int
    read: int
    cold_s: float
    warm_s: float


def run_pulled(link: Link, containerd: Containerd, reference: str, start: Start) -> Run:
    """Pull the image as a kubelet does, and start it; containerd forgets both afterwards."""
    name = f"pulled-{uuid.uuid4().hex[:8]}"

    def prepare() -> list[str]:
        containerd.pull(reference)
        return ["--snapshotter", containerd.snapshotter, reference, name]

    try:
        return measure(link, containerd, prepare, start)
    finally:
        forget(containerd, name)
        containerd.remove(reference)


def measure(link: Link, containerd: Containerd, prepare: Callable[[], list[str]], start: Start) -> Run:
    """Watch the container of which `prepare` says, once it is there, how containerd starts it."""
    os.sync()
    before, began = link.received(), time.monotonic()
    where = prepare()
    ready = time.monotonic() - began
    command = containerd.command("run", "--rm", *where, PYTHON, PROGRAM_PATH, "all", *start.modules)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            if process.stdout.readline() != "ready\n":
                raise BenchError("container", process.stderr.read()[-1500:])
            first, first_bytes = time.monotonic() - began, link.received() - before
            report = process.stdout.readline()
            if not report:
                raise BenchError("container", process.stderr.read()[-1500:])
            cold, warm = json.loads(report)
            # The second reading is not part of what a pull is compared by.
            end, end_bytes = time.monotonic() - began - warm["seconds"], link.received() - before
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
        finally:
            process.kill()
    return Run(ready, first, first_bytes, end, end_bytes, cold["bytes"], cold["seconds"], warm["reading"])


def forget(containerd: Containerd, name: str) -> None:
    """Remove a container that was cut short."""
    for command in (("tasks", "kill", "--signal", "SIGKILL", name), ("containers", "delete", name)):
        with contextlib.suppress(BenchError):
            containerd.ctr(*command)
