"""Processes of a measurement: compiled, pinned to a core, ended, and their CPU time."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import psutil

HERE = Path(__file__).parent
END_SECONDS = 5.0


class StartError(Exception):
    """A program did not start: it carries its name and the end of its log."""

    def __init__(self, name: str, log: str) -> None:
        self.name = name
        self.log = log
        super().__init__(f"{name} did not start:\n{log}")


def compiled(name: str, directory: Path) -> Path:
    """Compile one of the C programs of this folder, and return where it is."""
    program = directory / name
    command = ["cc", "-O2", "-o", str(program), str(HERE / f"{name}.c")]
    subprocess.run(command, check=True)
    return program


def cores() -> tuple[int, int]:
    """The core of what is measured, and the one of all else; the same where there is only one."""
    available = sorted(os.sched_getaffinity(0))
    return available[0], available[min(1, len(available) - 1)]


@contextlib.contextmanager
def pinned(
    command: Sequence[str],
    core: int,
    log: Path,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run `command` on one core, in a session of its own, and end it with all its children."""
    with log.open("wb") as written:
        process = subprocess.Popen(
            ["taskset", "--cpu-list", str(core), *command],
            stdin=subprocess.PIPE,
            stdout=written,
            stderr=written,
            env=environment,
            cwd=directory,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process that `pinned` started, and its children."""
    for signum in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signum)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_SECONDS)
            break
    if process.stdin is not None:
        process.stdin.close()


def cpu_seconds(process: int) -> float:
    """CPU time of a process and its children so far, kernel time included."""
    parent = psutil.Process(process)
    total = 0.0
    for each in [parent, *parent.children(recursive=True)]:
        times = each.cpu_times()
        total += times.user + times.system
    return total
