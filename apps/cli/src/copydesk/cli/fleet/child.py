"""One run of one process: in a session of its own, bound to the life of its supervisor, its output in a file."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from copydesk.cli.fleet.plan import ChildSpec
from copydesk.common.process import die_with_parent

TAIL_BYTES = 64 * 1024


class Child:
    """A started process; `wait` must be called, since it also clears away what the process leaves behind.

    `started` is on the event loop's clock, `started_at` in Unix seconds.
    """

    def __init__(self, process: subprocess.Popen[bytes], started: float, started_at: float) -> None:
        self.started = started
        self.started_at = started_at
        self._process = process

    @classmethod
    def spawn(cls, spec: ChildSpec, log: Path, environ: Mapping[str, str]) -> Child:
        """Start a process; OSError if there is no such program.

        A session of its own keeps the terminal's Ctrl-C from it: the supervisor decides who stops when. The kernel
        kills it should the supervisor die, in whatever way: that is set between fork and exec, which is sound as
        long as this process has one thread, and binds a program like nats-server that knows nothing of it.
        """
        with log.open("ab") as output:
            process = subprocess.Popen(
                spec.argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**environ, **spec.env},
                start_new_session=True,
                preexec_fn=partial(die_with_parent, os.getpid(), signum=signal.SIGKILL),
            )
        return cls(process, asyncio.get_running_loop().time(), time.time())

    @property
    def pid(self) -> int:
        """The process id, which is also its group's."""
        return self._process.pid

    async def wait(self) -> int:
        """Wait for the end, and return the exit code, negative for a signal."""
        await _exited(self.pid)
        # Before the process is reaped, while nobody else can have got its number.
        self._signal_group(signal.SIGKILL)
        return self._process.wait()

    def terminate(self) -> None:
        """Ask the process to end; it asks its own children."""
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the process and its whole group."""
        if self._process.returncode is None:
            self._signal_group(signal.SIGKILL)

    def _signal_group(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


async def _exited(pid: int) -> None:
    """Wait until a child has ended, without a thread for each (asyncio's own way on Python 3.11)."""
    loop = asyncio.get_running_loop()
    descriptor = os.pidfd_open(pid)
    done = asyncio.Event()
    loop.add_reader(descriptor, done.set)
    try:
        await done.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def rotate(log: Path) -> None:
    """Begin a new log; the one of the last start stays beside it."""
    if log.exists():
        log.replace(log.with_suffix(".log.1"))
    log.touch()


def bound(log: Path, limit: int) -> bool:
    """Begin a log of more than `limit` bytes anew while its process writes on; say whether that was done.

    Its last `limit` bytes stay beside it, unless the disk is full. A process appends, so that it goes on at the
    new beginning; what it writes in the moment between the two steps is lost.
    """
    try:
        if log.stat().st_size <= limit:
            return False
        with contextlib.suppress(OSError):
            _copy_end(log, log.with_suffix(".log.1"), limit)
        os.truncate(log, 0)
    except OSError:
        return False
    return True


def _copy_end(source: Path, target: Path, length: int) -> None:
    with source.open("rb") as file, target.open("wb") as copy:
        file.seek(-length, os.SEEK_END)
        shutil.copyfileobj(file, copy)


def tail(log: Path, lines: int) -> tuple[str, ...]:
    """Return the last lines of a log, nothing if there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return ()
    return tuple(line for line in text.splitlines() if line.strip())[-lines:]
