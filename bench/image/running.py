"""One container, from a pull or a mount to its end, with the clock and the link watched."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.image.content import ENVIRONMENT, PROGRAM_PATH, PYTHON, Start
from bench.image.errors import BenchError
from bench.image.network import Link
from bench.image.processes import Containerd
from copydesk.imagefetcher.control.client import ControlClient
from copydesk.imagefetcher.device.mounts import mount_overlay, unmount
from copydesk.imagefetcher.errors import ImageError


@dataclass(frozen=True)
class Run:
    """Seconds and bytes since the pull began: when the container could be started, its first output, its end.

    `read` is how much it read of the image from its first output on, first with what has come so far, then again.
    """

    ready_s: float
    first_output_s: float
    first_output_bytes: int
    end_s: float
    end_bytes: int
    read: int
    cold_s: float
    warm_s: float


def run_normal(link: Link, containerd: Containerd, reference: str, start: Start) -> Run:
    """Pull the image whole, and start it; nothing is left of it afterwards."""
    name = f"normal-{uuid.uuid4().hex[:8]}"

    def prepare() -> list[str]:
        containerd.pull(reference)
        return ["--snapshotter", "overlayfs", reference, name]

    try:
        return _measure(link, containerd, prepare, start)
    finally:
        _forget(containerd, name)
        containerd.remove(reference)


def run_lazy(
    link: Link, containerd: Containerd, client: ControlClient, reference: str, start: Start, folder: Path
) -> Run:
    """Mount the image, and start it; nothing is left of it afterwards, not even in the daemon's cache."""
    name = f"lazy-{uuid.uuid4().hex[:8]}"
    with _folders(folder / name) as (image, upper, work, root):

        def prepare() -> list[str]:
            client.mount(reference, image)
            mount_overlay(image, upper, work, root)
            return [*_environment(), "--rootfs", str(root), name]

        try:
            return _measure(link, containerd, prepare, start)
        finally:
            _forget(containerd, name)
            with contextlib.suppress(ImageError):
                unmount(root, detach=True)
            with contextlib.suppress(ImageError):
                client.unmount(image, detach=True)
            client.clear_cache()


def _environment() -> Iterator[str]:
    for variable, value in ENVIRONMENT.items():
        yield from ("--env", f"{variable}={value}")


@contextmanager
def _folders(folder: Path) -> Iterator[list[Path]]:
    """A mount point of the image, and what an overlay of it needs."""
    own = [folder / name for name in ("image", "upper", "work", "root")]
    for path in own:
        path.mkdir(parents=True)
    yield own


def _measure(link: Link, containerd: Containerd, prepare: Callable[[], list[str]], start: Start) -> Run:
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
        finally:
            if process.poll() is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(10)
            process.kill()
    return Run(ready, first, first_bytes, end, end_bytes, cold["bytes"], cold["seconds"], warm["seconds"])


def _forget(containerd: Containerd, name: str) -> None:
    """Remove a container that was cut short."""
    for command in (("tasks", "kill", "--signal", "SIGKILL", name), ("containers", "delete", name)):
        with contextlib.suppress(BenchError):
            containerd.ctr(*command)
