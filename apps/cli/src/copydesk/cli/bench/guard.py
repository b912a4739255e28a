"""Ends what a killed command leaves behind: `python -m copydesk.cli.bench.guard`.

The kernel kills the programs that the command started when the command dies, but not what those have started
themselves; vLLM's engine outlives its server, and one that is frozen would stay so for ever. The guard hears of
each session over its standard input, and when that ends, kills every process of those that remain.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterable

import psutil


class Guard:
    """The command's side: names the sessions that must not outlive it."""

    def __init__(self) -> None:
        argv = [sys.executable, "-m", "copydesk.cli.bench.guard"]
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, start_new_session=True)

    def watch(self, session: int) -> None:
        """Name a session."""
        self._tell(session)

    def release(self, session: int) -> None:
        """Say that nothing of a session is left: its number may come to mean another."""
        self._tell(-session)

    def close(self) -> None:
        """End the guard, which kills what was not released."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        self._process.wait()

    def _tell(self, number: int) -> None:
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.write(b"%d\n" % number)
                self._process.stdin.flush()


def remaining(lines: Iterable[str]) -> set[int]:
    """Return the sessions that were named and not released."""
    sessions: set[int] = set()
    for line in lines:
        number = int(line)
        sessions.add(number) if number > 0 else sessions.discard(-number)
    return sessions


def kill_sessions(sessions: set[int]) -> None:
    """Kill every process of these sessions."""
    for pid in psutil.pids():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.getsid(pid) in sessions:
                os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    kill_sessions(remaining(sys.stdin))
